"""What members of groups are answered by socket, in every version of each request."""

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.coordinators.coordinator_log import PartitionLog
from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_coordinator import GroupCoordinator
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    GROUP_APIS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from raylog.actors.plane.door import Door
from raylog.actors.plane.errors import MalformedRequest, PeerGone
from raylog.actors.plane.groups.door import MAX_CLIENT_ID_BYTES
from raylog.actors.plane.parking import Parking
from raylog.storage.clock import SteadyClock, SystemClock
from raylog.storage.schemas.types import StructType, Value
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.waiting import wait_for
from tests.unit.actors.plane.clients import Client, client_of, cluster_door, partition

GROUP = "readers"
CONFIG = GroupConfig(initial_rebalance_delay_ms=0)


# Of fields that a version may have, and that nothing here is about.
UNSAID: dict[str, Any] = {
    "groupInstanceId": None,
    "protocolType": None,
    "protocolName": None,
    "reason": None,
    "requireStable": False,
    "includeAuthorizedOperations": False,
    "statesFilter": [],
    "typesFilter": [],
    "memberId": None,
    "memberEpoch": -1,
    "retentionTimeMs": -1,
}


def ask(client: Client, api: Api, version: int, **body: Any) -> Value:
    """As ``Client.ask``; what is not said has its default."""
    return client.ask(api, version, **_filled(api.request.struct, version, body))


def _filled(struct: StructType, version: int, body: dict[str, Any]) -> dict[str, Any]:
    filled = dict(body)
    for field in struct.fields:
        if not field.first_version <= version <= field.last_version:
            continue
        if field.name not in filled and field.name in UNSAID:
            filled[field.name] = UNSAID[field.name]
        entry = getattr(field.type, "entry", None)
        if isinstance(entry, StructType) and filled.get(field.name):
            filled[field.name] = [_filled(entry, version, one) for one in filled[field.name]]
    return filled


def versions(api: Api) -> range:
    return range(api.first_version, api.last_version + 1)


class Loading:
    """A log that is not read before it is told to."""

    def append(self, records: object, now_ms: int, producer: object = None) -> int:
        raise AssertionError

    def end(self, end: object) -> None:
        raise AssertionError

    end_offset, is_settled = 0, True

    def settle(self, up_to: int) -> None:
        raise AssertionError

    def read(self) -> Iterator[Any]:
        raise AssertionError


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    wall = ManualClock()
    log = PartitionLog(partition(tmp_path, clock=wall))
    failures: list[BaseException] = []
    coordinator = GroupCoordinator("offsets-0", log, SteadyClock(), wall, CONFIG, failures.append)
    coordinator.begin()
    made = Door(lambda request, parking: [], coordinator=coordinator)
    with client_of(made) as client:
        wait_for(lambda: ask(client, LIST_GROUPS, 0)["errorCode"] == 0)
    yield made
    coordinator.stop()
    assert not failures


@pytest.fixture
def client(door: Door) -> Iterator[Client]:
    with client_of(door) as client:
        yield client


def join(version: int, member_id: str = "", group: str = GROUP) -> dict[str, Any]:
    body: dict[str, Any] = {
        "groupId": group,
        "sessionTimeoutMs": 10_000,
        "memberId": member_id,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
        "groupInstanceId": None,
        "reason": None,
    }
    if version >= 1:
        body["rebalanceTimeoutMs"] = 30_000
    return body


def joined(client: Client, version: int, group: str = GROUP) -> Value:
    answer = ask(client, JOIN_GROUP, version, **join(version, group=group))
    if version >= 4:
        assert answer["errorCode"] == 79
        again = join(version, answer["memberId"], group)
        answer = ask(client, JOIN_GROUP, version, **again)
    assert answer["errorCode"] == 0
    return answer


def settled(client: Client, version: int = 3, group: str = GROUP) -> Value:
    """A member that has its assignment."""
    member = joined(client, 5, group)
    body: dict[str, Any] = {
        "groupId": group,
        "generationId": member["generationId"],
        "memberId": member["memberId"],
        "assignments": [{"memberId": member["memberId"], "assignment": b"all"}],
    }
    if version >= 5:
        body |= {"protocolType": "consumer", "protocolName": "range"}
    assert ask(client, SYNC_GROUP, version, **body)["assignment"] == b"all"
    return member


@pytest.mark.parametrize("version", versions(JOIN_GROUP))
def test_a_member_joins_in_each_version(client: Client, version: int) -> None:
    answer = joined(client, version)
    assert answer["memberId"].startswith("test-")
    assert answer["leader"] == answer["memberId"]
    assert (answer["generationId"], answer["protocolName"]) == (1, "range")
    (member,) = answer["members"]
    assert (member["memberId"], member["metadata"]) == (answer["memberId"], b"topics")
    if version >= 7:
        assert answer["protocolType"] == "consumer"
    refused = ask(client, JOIN_GROUP, version, **join(version, "of nobody"))
    assert (refused["errorCode"], refused["memberId"]) == (25, "of nobody")
    assert refused["protocolName"] == (None if version >= 7 else "")


def test_a_leader_that_comes_back_is_told_to_assign_nothing_if_it_understands_that(
    client: Client,
) -> None:
    for version, skips in ((9, True), (8, False)):
        group = f"group-{version}"
        body = {**join(version, group=group), "groupInstanceId": "i"}
        first = ask(client, JOIN_GROUP, version, **body)
        assignments = [{"memberId": first["memberId"], "assignment": b"all"}]
        who = {"groupId": group, "generationId": 1, "groupInstanceId": "i"}
        ask(
            client,
            SYNC_GROUP,
            5,
            **who,
            memberId=first["memberId"],
            assignments=assignments,
            protocolType="consumer",
            protocolName="range",
        )
        again = ask(client, JOIN_GROUP, version, **body)
        assert again["errorCode"] == 0
        assert again["memberId"] != first["memberId"]
        if skips:
            assert again["skipAssignment"]
        else:
            assert again["leader"] == first["memberId"]


@pytest.mark.parametrize("version", versions(SYNC_GROUP))
def test_a_member_gets_its_assignment_in_each_version(client: Client, version: int) -> None:
    member = settled(client, version)
    body: dict[str, Any] = {"groupId": GROUP, "generationId": 1, "assignments": []}
    if version >= 5:
        body |= {"protocolType": "consumer", "protocolName": "range"}
    again = ask(client, SYNC_GROUP, version, memberId=member["memberId"], **body)
    assert again["assignment"] == b"all"
    if version >= 5:
        assert (again["protocolType"], again["protocolName"]) == ("consumer", "range")
    refused = ask(client, SYNC_GROUP, version, memberId="of nobody", **body)
    assert (refused["errorCode"], refused["assignment"]) == (25, b"")


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_a_member_lives_in_each_version(client: Client, version: int) -> None:
    member = settled(client)
    body: dict[str, Any] = {"groupId": GROUP, "memberId": member["memberId"]}
    for generation, code in ((1, 0), (0, 22)):
        answer = ask(client, HEARTBEAT, version, **body, generationId=generation)
        assert answer["errorCode"] == code


@pytest.mark.parametrize("version", versions(LEAVE_GROUP))
def test_a_member_leaves_in_each_version(client: Client, version: int) -> None:
    member_id = settled(client)["memberId"]
    for code in (0, 25):
        if version < 3:
            answer = ask(client, LEAVE_GROUP, version, groupId=GROUP, memberId=member_id)
            assert answer["errorCode"] == code
            continue
        members = [{"memberId": member_id, "groupInstanceId": None}]
        answer = ask(client, LEAVE_GROUP, version, groupId=GROUP, members=members)
        assert answer["errorCode"] == 0
        assert answer["members"] == [{**members[0], "errorCode": code}]
    nobody = ask(client, LEAVE_GROUP, 2, groupId="", memberId=member_id)
    assert nobody["errorCode"] == 24


def commit_body(version: int, offset: int, **more: Any) -> dict[str, Any]:
    part: dict[str, Any] = {
        "partitionIndex": 1,
        "committedOffset": offset,
        "committedMetadata": None,
    }
    if version >= 6:
        part["committedLeaderEpoch"] = 3
    body: dict[str, Any] = {
        "groupId": GROUP,
        "memberId": "",
        "generationIdOrMemberEpoch": -1,
        "groupInstanceId": None,
        "retentionTimeMs": -1,
        "topics": [
            {"name": "orders", "partitions": [part, {**part, "partitionIndex": 2}]},
            {"name": "bills", "partitions": [part]},
        ],
    }
    return {**body, **more}


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
def test_offsets_are_committed_in_each_version(client: Client, version: int) -> None:
    answer = ask(client, OFFSET_COMMIT, version, **commit_body(version, 7))
    assert answer["topics"] == [
        {
            "name": name,
            "partitions": [{"partitionIndex": index, "errorCode": 0} for index in indexes],
        }
        for name, indexes in (("orders", (1, 2)), ("bills", (1,)))
    ]
    refused = ask(
        client,
        OFFSET_COMMIT,
        version,
        **commit_body(version, 8, groupId="of nobody", generationIdOrMemberEpoch=1),
    )
    codes = {one["errorCode"] for topic in refused["topics"] for one in topic["partitions"]}
    assert codes == {69 if version >= 9 else 22}


@pytest.mark.parametrize("version", versions(OFFSET_FETCH))
def test_offsets_are_told_in_each_version(client: Client, version: int) -> None:
    ask(client, OFFSET_COMMIT, 6, **commit_body(6, 7))
    asked = [{"name": "orders", "partitionIndexes": [1, 9]}]
    body: dict[str, Any] = {"requireStable": True} if version >= 7 else {}
    if version >= 8:
        answer = ask(
            client,
            OFFSET_FETCH,
            version,
            **body,
            groups=[
                {"groupId": GROUP, "topics": asked},
                {"groupId": GROUP, "topics": None},
                {"groupId": "of nobody", "topics": None},
            ],
        )
        named, everything, nothing = answer["groups"]
        assert [group["errorCode"] for group in answer["groups"]] == [0, 0, 0]
        assert nothing["topics"] == []
    else:
        named = ask(client, OFFSET_FETCH, version, **body, groupId=GROUP, topics=asked)
        everything = (
            ask(client, OFFSET_FETCH, version, **body, groupId=GROUP, topics=None)
            if version >= 2
            else None
        )
    (topic,) = named["topics"]
    found = [(one["partitionIndex"], one["committedOffset"]) for one in topic["partitions"]]
    assert found == [(1, 7), (9, -1)]
    if version >= 5:
        assert topic["partitions"][0]["committedLeaderEpoch"] == 3
    if everything is not None:
        assert {topic["name"] for topic in everything["topics"]} == {"orders", "bills"}


def test_a_member_of_the_newer_protocol_is_told_that_there_is_no_such_group(
    client: Client,
) -> None:
    group = {"groupId": "of nobody", "memberId": "m", "memberEpoch": 1, "topics": None}
    answer = ask(client, OFFSET_FETCH, 9, groups=[group], requireStable=False)
    assert answer["groups"][0]["errorCode"] == 69


def test_offsets_are_deleted(client: Client) -> None:
    ask(client, OFFSET_COMMIT, 6, **commit_body(6, 7))
    topics = [{"name": "orders", "partitions": [{"partitionIndex": 1}]}]
    answer = ask(client, OFFSET_DELETE, 0, groupId=GROUP, topics=topics)
    parts = [{"partitionIndex": 1, "errorCode": 0}]
    assert answer["topics"] == [{"name": "orders", "partitions": parts}]
    nobody = ask(client, OFFSET_DELETE, 0, groupId="of nobody", topics=topics)
    assert (nobody["errorCode"], nobody["topics"]) == (69, [])


def test_a_member_that_does_not_say_its_protocol_is_refused(client: Client) -> None:
    """KIP-559; what Kafka answers, too."""
    member = joined(client, 5)
    who = {"groupId": GROUP, "generationId": 1, "memberId": member["memberId"], "assignments": []}
    for named in ({}, {"protocolType": "consumer"}, {"protocolName": "range"}):
        assert ask(client, SYNC_GROUP, 5, **who, **named)["errorCode"] == 23
    assert ask(client, SYNC_GROUP, 4, **who)["errorCode"] == 0


def test_no_group_is_without_a_name(client: Client) -> None:
    told = ask(client, DELETE_GROUPS, 2, groupsNames=[""])
    assert [one["errorCode"] for one in told["results"]] == [69]
    assert ask(client, OFFSET_DELETE, 0, groupId="", topics=[])["errorCode"] == 24


@pytest.mark.parametrize("version", versions(LIST_GROUPS))
def test_groups_are_listed_in_each_version(client: Client, version: int) -> None:
    settled(client)
    answer = ask(client, LIST_GROUPS, version)
    (group,) = answer["groups"]
    assert (group["groupId"], group["protocolType"]) == (GROUP, "consumer")
    if version >= 4:
        assert group["groupState"] == "Stable"
        assert ask(client, LIST_GROUPS, version, statesFilter=["Empty"])["groups"] == []
    if version >= 5:
        assert group["groupType"] == "classic"
        assert ask(client, LIST_GROUPS, version, typesFilter=["consumer"])["groups"] == []


@pytest.mark.parametrize("version", versions(DESCRIBE_GROUPS))
def test_groups_are_described_in_each_version(client: Client, version: int) -> None:
    member = settled(client)
    body: dict[str, Any] = {"groups": [GROUP, "of nobody"]}
    if version >= 3:
        body["includeAuthorizedOperations"] = True
    group, nobody = ask(client, DESCRIBE_GROUPS, version, **body)["groups"]
    assert (group["errorCode"], group["groupState"]) == (0, "Stable")
    assert (group["protocolType"], group["protocolData"]) == ("consumer", "range")
    (described,) = group["members"]
    assert described["memberId"] == member["memberId"]
    assert (described["clientId"], described["clientHost"]) == ("test", "/127.0.0.1")
    assert (described["memberMetadata"], described["memberAssignment"]) == (b"topics", b"all")
    assert nobody["groupState"] == "Dead"
    if version >= 3:
        assert group["authorizedOperations"] == 328
        assert nobody["authorizedOperations"] == -(2**31) or version < 6
    assert nobody["errorCode"] == (69 if version >= 6 else 0)
    if version >= 6:
        assert nobody["errorMessage"] == "Group of nobody not found."


@pytest.mark.parametrize("version", versions(DELETE_GROUPS))
def test_groups_are_deleted_in_each_version(client: Client, version: int) -> None:
    ask(client, OFFSET_COMMIT, 6, **commit_body(6, 7))
    settled(client, group="with members")
    names = [GROUP, "with members", "of nobody"]
    results = ask(client, DELETE_GROUPS, version, groupsNames=names)["results"]
    assert [(one["groupId"], one["errorCode"]) for one in results] == [
        (GROUP, 0),
        ("with members", 68),
        ("of nobody", 69),
    ]


def test_a_member_waits_in_its_connection_for_the_others(door: Door, client: Client) -> None:
    ann = settled(client)
    with client_of(door) as other, ThreadPoolExecutor() as pool:
        waiting = pool.submit(joined, other, 5)
        wait_for(
            lambda: (
                ask(client, HEARTBEAT, 3, groupId=GROUP, memberId=ann["memberId"], generationId=1)[
                    "errorCode"
                ]
                == 27
            )
        )
        assert not waiting.done()
        again = ask(client, JOIN_GROUP, 5, **join(5, ann["memberId"]))
        assert again["generationId"] == 2
        assert waiting.result()["generationId"] == 2


def test_a_member_that_hangs_up_while_it_waits_ends_its_connection_alone(
    door: Door, client: Client
) -> None:
    ann = settled(client)
    with client_of(door) as other:
        told = ask(other, JOIN_GROUP, 5, **join(5))
        other.send(JOIN_GROUP, 5, **join(5, told["memberId"]))
        wait_for(
            lambda: (
                ask(client, HEARTBEAT, 3, groupId=GROUP, memberId=ann["memberId"], generationId=1)[
                    "errorCode"
                ]
                == 27
            )
        )
        other.close()
        wait_for(lambda: other.ended is not None)
        assert isinstance(other.ended, PeerGone)
    assert ask(client, LIST_GROUPS, 0)["errorCode"] == 0


def bodies() -> list[tuple[Api, dict[str, Any]]]:
    """A request of each API, as of its first version."""
    who: dict[str, Any] = {"groupId": GROUP, "generationId": 1, "memberId": "m"}
    topics = [{"name": "orders", "partitionIndexes": [1]}]
    parts = [{"name": "orders", "partitions": [{"partitionIndex": 1}]}]
    return [
        (OFFSET_COMMIT, commit_body(2, 7)),
        (OFFSET_FETCH, {"groupId": GROUP, "topics": topics}),
        (JOIN_GROUP, join(0)),
        (HEARTBEAT, who),
        (LEAVE_GROUP, {"groupId": GROUP, "memberId": "m"}),
        (SYNC_GROUP, {**who, "assignments": []}),
        (DESCRIBE_GROUPS, {"groups": [GROUP]}),
        (LIST_GROUPS, {}),
        (DELETE_GROUPS, {"groupsNames": [GROUP]}),
        (OFFSET_DELETE, {"groupId": GROUP, "topics": parts}),
    ]


def codes_of(answer: Value) -> set[int]:
    """All error codes in an answer."""
    found = {answer["errorCode"]} if "errorCode" in answer else set()
    for value in answer.values():
        for one in value if isinstance(value, list) else ():
            found |= codes_of(one)
    return found


def test_all_apis_of_groups_are_tried_here() -> None:
    assert {api for api, _ in bodies()} == set(GROUP_APIS)


@pytest.mark.parametrize(("api", "body"), bodies(), ids=lambda one: getattr(one, "name", ""))
def test_who_coordinates_nothing_says_so_and_lists_no_groups(
    api: Api, body: dict[str, Any]
) -> None:
    with client_of(cluster_door()) as client:
        answer = ask(client, api, api.first_version, **body)
    expected = {0} if api is LIST_GROUPS else {16}
    assert codes_of(answer) - {0} == expected - {0}


@pytest.mark.parametrize(("api", "body"), bodies(), ids=lambda one: getattr(one, "name", ""))
def test_who_reads_its_log_yet_asks_for_patience_and_loses_no_member(
    api: Api, body: dict[str, Any]
) -> None:
    coordinator = GroupCoordinator(
        "offsets-0",
        Loading(),
        SteadyClock(),
        SystemClock(),
        CONFIG,
        print,
    )
    with client_of(Door(lambda request, parking: [], coordinator=coordinator)) as client:
        answer = ask(client, api, api.first_version, **body)
    assert codes_of(answer) - {0} == (set() if api is HEARTBEAT else {14})


def test_a_client_id_that_is_too_long_for_a_members_id_ends_the_connection(door: Door) -> None:
    def frame(client_id_bytes: int) -> bytearray:
        body = JOIN_GROUP.request.write(_filled(JOIN_GROUP.request.struct, 5, join(5)), 5)
        head = struct.pack(">hhih", JOIN_GROUP.key, 5, 1, client_id_bytes)
        return bytearray(head + b"c" * client_id_bytes + body)

    ours, peer = socket.socketpair()
    with closing(ours), closing(peer):
        parking = Parking(ours)
        assert door([frame(MAX_CLIENT_ID_BYTES)], parking)
        with pytest.raises(MalformedRequest, match="client id"):
            door([frame(MAX_CLIENT_ID_BYTES + 1)], parking)
