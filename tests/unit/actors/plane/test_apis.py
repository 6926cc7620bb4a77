"""The table of APIs is Kafka 4.3's: keys, names, versions, and which versions are flexible."""

import re

import pytest

from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.connection import API_VERSIONS
from raylog.actors.plane.apis.records import FETCH, PRODUCE
from raylog.actors.plane.apis.table import APIS, served_versions
from raylog.storage.schemas.types import Array, StructType
from tests.harness.paths import ROOT
from tests.unit.actors.plane.bodies import DESCRIBED

# key, name, first and last version that Kafka 4.3 serves, first flexible one (None: none). Of
# OffsetCommit and OffsetFetch it serves 10, too, which names topics by ids, and of ListTransactions
# 2, which has a regular expression.
KAFKA = [
    (0, "Produce", 3, 13, 9),
    (1, "Fetch", 4, 18, 12),
    (2, "ListOffsets", 1, 11, 6),
    (3, "Metadata", 0, 13, 9),
    (8, "OffsetCommit", 2, 9, 8),
    (9, "OffsetFetch", 1, 9, 6),
    (10, "FindCoordinator", 0, 6, 3),
    (11, "JoinGroup", 0, 9, 6),
    (12, "Heartbeat", 0, 4, 4),
    (13, "LeaveGroup", 0, 5, 4),
    (14, "SyncGroup", 0, 5, 4),
    (15, "DescribeGroups", 0, 6, 5),
    (16, "ListGroups", 0, 5, 3),
    (17, "SaslHandshake", 0, 1, None),
    (18, "ApiVersions", 0, 4, 3),
    (19, "CreateTopics", 2, 7, 5),
    (20, "DeleteTopics", 1, 6, 4),
    (21, "DeleteRecords", 0, 2, 2),
    (22, "InitProducerId", 0, 5, 2),
    (23, "OffsetForLeaderEpoch", 2, 4, 4),
    (24, "AddPartitionsToTxn", 0, 5, 3),
    (25, "AddOffsetsToTxn", 0, 4, 3),
    (26, "EndTxn", 0, 5, 3),
    (27, "WriteTxnMarkers", 1, 2, 1),
    (28, "TxnOffsetCommit", 0, 5, 3),
    (32, "DescribeConfigs", 1, 4, 4),
    (33, "AlterConfigs", 0, 2, 2),
    (35, "DescribeLogDirs", 1, 5, 2),
    (36, "SaslAuthenticate", 0, 2, 2),
    (37, "CreatePartitions", 0, 3, 2),
    (42, "DeleteGroups", 0, 2, 2),
    (44, "IncrementalAlterConfigs", 0, 1, 1),
    (46, "ListPartitionReassignments", 0, 0, 0),
    (47, "OffsetDelete", 0, 0, None),
    (60, "DescribeCluster", 0, 2, 0),
    (61, "DescribeProducers", 0, 0, 0),
    (65, "DescribeTransactions", 0, 0, 0),
    (66, "ListTransactions", 0, 1, 0),
    (75, "DescribeTopicPartitions", 0, 0, 0),
]


def test_the_table_has_these_apis_in_these_versions() -> None:
    assert [row_of(api) for api in APIS.values()] == KAFKA


def row_of(api: Api) -> tuple[int, str, int, int, int | None]:
    return (
        api.key,
        api.name,
        api.first_version,
        api.last_version,
        api.flexible_version if api.is_flexible(api.last_version) else None,
    )


def test_the_page_of_the_protocol_has_these_apis_in_these_versions() -> None:
    page = (ROOT / "docs" / "PROTOCOL.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([\d-]+) \| (\S+) \|$", page, re.MULTILINE)
    assert rows == [
        (
            str(key),
            name,
            str(first) if first == last else f"{first}-{last}",
            "-" if flexible is None else str(flexible),
        )
        for key, name, first, last, flexible in KAFKA
    ]


def test_the_two_requests_of_records_are_hot() -> None:
    assert [api for api in APIS.values() if api.is_hot] == [PRODUCE, FETCH]


@pytest.mark.parametrize("api", DESCRIBED, ids=lambda api: api.name)
def test_request_header_2_and_answer_header_1_belong_to_flexible_versions(api: Api) -> None:
    for version in range(api.first_version, api.last_version + 1):
        is_flexible = version >= api.flexible_version
        assert api.request_header_version(version) == (2 if is_flexible else 1)
        if api is not API_VERSIONS:
            assert api.answer_header_version(version) == (1 if is_flexible else 0)


def test_an_answer_of_apiversions_has_header_0_in_every_version() -> None:
    assert {API_VERSIONS.answer_header_version(version) for version in range(5)} == {0}


def test_apiversions_tells_what_is_served_and_produce_from_version_0_on() -> None:
    told = {
        entry["apiKey"]: (entry["minVersion"], entry["maxVersion"])
        for entry in served_versions()["apiKeys"]
    }
    served = {key: (first, last) for key, _, first, last, _ in KAFKA}
    assert told == {**served, 0: (0, 13)}


@pytest.mark.parametrize("version", range(5))
def test_every_client_can_read_the_answer_of_apiversions(version: int) -> None:
    content = API_VERSIONS.answer.write(served_versions(), version)
    value = API_VERSIONS.answer.read(content, version)
    assert value["apiKeys"] == served_versions()["apiKeys"]
    assert value["finalizedFeaturesEpoch"] == -1
    assert len(content) == {0: 240, 1: 244, 2: 244}.get(version, 281)


@pytest.mark.parametrize("api", DESCRIBED, ids=lambda api: api.name)
def test_no_field_is_of_no_version_and_tags_are_of_flexible_versions(api: Api) -> None:
    def check(struct: StructType) -> None:
        for field in struct.fields:
            assert field.first_version <= api.last_version, field.name
            assert field.last_version >= api.first_version, field.name
            assert field.tag is None or field.first_version >= api.flexible_version, field.name
            kind = field.type.entry if isinstance(field.type, Array) else field.type
            if isinstance(kind, StructType):
                check(kind)

    check(api.request.struct)
    check(api.answer.struct)
