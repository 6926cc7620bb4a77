"""kio, whose classes are generated from Kafka 4.3's schemas, reads and writes every message alike.

So all APIs, also those that are not served yet, have Kafka's fields: their names, order, types,
versions, tags and defaults. kio has other types for some values (times, errors, ids that may be
missing), and not all numbers are values of these; ``kio_values`` chooses such as are.
"""

from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from raylog.actors.plane.apis.api import Api
from raylog.storage.schemas.types import Array, StructType
from tests.unit.actors.plane.bodies import DESCRIBED, DESCRIBED_VERSIONS, bodies
from tests.unit.actors.plane.kio_values import NO_DEFAULT, adapted, defaults, plain, said

LOADERS = {"request": load_request_schema, "answer": load_response_schema}


@pytest.mark.parametrize("side", LOADERS)
@pytest.mark.parametrize(("api", "version"), DESCRIBED_VERSIONS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(data=st.data())
def test_kio_reads_what_we_write_and_writes_what_we_read(
    side: str, api: Api, version: int, data: st.DataObject
) -> None:
    kio_class: Any = LOADERS[side](api.key, version)
    schema = api.request if side == "request" else api.answer
    value = adapted(data.draw(bodies(schema, version)), kio_class)
    content = schema.write(value, version)
    entity, size = entity_reader(kio_class)(content, 0)
    assert size == len(content)
    assert plain(entity) == said(value, kio_class)
    assert schema.read(content, version) == value
    written = BytesIO()
    entity_writer(kio_class)(written, entity)
    assert written.getvalue() == content


@pytest.mark.parametrize("side", LOADERS)
@pytest.mark.parametrize("api", DESCRIBED, ids=lambda api: api.name)
def test_a_default_that_kafka_gives_is_ours(side: str, api: Api) -> None:
    schema = api.request if side == "request" else api.answer
    for version in range(api.first_version, api.last_version + 1):
        check_defaults(schema.struct, LOADERS[side](api.key, version))


def check_defaults(struct: StructType, kio_class: Any) -> None:
    ours = {field.name: field for field in struct.fields}
    for name, default, nested in defaults(kio_class):
        field = ours[name]
        if default not in (NO_DEFAULT, []):  # an array that may be null begins as null here
            assert said(field.default, nested) == default, name
        if nested is not None:
            kind = field.type.entry if isinstance(field.type, Array) else field.type
            assert isinstance(kind, StructType)
            check_defaults(kind, nested)
