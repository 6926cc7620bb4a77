"""Every record that Kafka wrote into its own topics is written by us as the same bytes."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raylog.storage.files import RealFileSystem
from raylog.storage.records.control import ABORT, COMMIT, control_type
from raylog.storage.records.decode import decode_records
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from raylog.storage.schemas.control import CONTROL_VALUES
from raylog.storage.schemas.groups import GROUP_RECORDS
from raylog.storage.schemas.metadata import read_record, write_record
from raylog.storage.schemas.schema import read_version
from raylog.storage.schemas.transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from raylog.storage.tools.dump.logs import file_batches, messages
from tests.harness.paths import GOLDEN

KRAFT = GOLDEN / "kafka-3.9-kraft-clean"


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None


def rows(paths: list[Path], control: bool = False) -> Iterator[Row]:
    """The records of these logs, or their control records."""
    for path in paths:
        for batch in file_batches(RealFileSystem().open(str(path))):
            if batch.header.magic < 2:
                for message in messages(batch):
                    key, value = (
                        None if field is None else bytes(field)
                        for field in (message.key, message.value)
                    )
                    yield Row(key, value)
            elif batch.header.is_control == control:
                for record in decode_records(batch.content(), control=control):
                    yield Row(record.key, record.value)


def logs(topic: str, folder: str = "*") -> list[Path]:
    return sorted(GOLDEN.glob(f"{folder}/{topic}-*/*.log"))


def test_consumer_offsets() -> None:
    types: set[int] = set()
    for row in rows(logs("__consumer_offsets")):
        reader = ByteReader(row.key or b"")
        record_type = read_version(reader)
        types.add(record_type)
        schemas = GROUP_RECORDS[record_type]
        key = schemas.key.read(reader, record_type)
        assert schemas.key.write_versioned(key, record_type) == row.key
        if row.value is None:
            continue
        version, value = schemas.value.read_versioned(row.value)
        assert schemas.value.write_versioned(value, version) == row.value
        for member in value.get("members", ()):
            for name, schema in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
                version, content = schema.read_versioned(member[name])
                assert schema.write_versioned(content, version) == member[name]
    assert types == {1, 2}


def test_transaction_state() -> None:
    count = 0
    for row in rows(logs("__transaction_state")):
        version, key = TRANSACTION_KEY.read_versioned(row.key or b"")
        assert TRANSACTION_KEY.write_versioned(key, version) == row.key
        version, value = TRANSACTION_VALUE.read_versioned(row.value or b"")
        assert TRANSACTION_VALUE.write_versioned(value, version) == row.value
        count += 1
    assert count > 10


def test_cluster_metadata() -> None:
    types: set[int] = set()
    for row in rows([*logs("__cluster_metadata"), KRAFT / "bootstrap.checkpoint"]):
        record = read_record(row.value or b"")
        assert write_record(record) == row.value
        types.add(record.type)
    assert types >= {0, 2, 3, 4, 12, 15, 20}


@pytest.mark.parametrize("name", ["bootstrap.checkpoint"])
def test_control_records(name: str) -> None:
    types: set[int] = set()
    for row in rows([KRAFT / name], control=True):
        record_type = control_type(row.key)
        if record_type in (ABORT, COMMIT) or record_type not in CONTROL_VALUES:
            continue
        _, schema = CONTROL_VALUES[record_type]
        assert schema.write(schema.read(row.value or b"", 0), 0) == row.value
        types.add(record_type)
    assert types == {3, 4}
