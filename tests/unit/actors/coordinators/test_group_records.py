"""Groups and offsets as records: Kafka's bytes, of all versions that Kafka has written."""

import pytest

from raylog.actors.coordinators.group import Group, Member, State
from raylog.actors.coordinators.group_messages import JoinAnswer, Protocol
from raylog.actors.coordinators.group_records import (
    Committed,
    GroupRecord,
    OffsetRecord,
    group_key,
    group_record,
    offset_key,
    offset_record,
    read,
)
from raylog.actors.coordinators.log_record import LogRecord
from raylog.storage.errors import InvalidRecord
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.groups import GROUP_RECORDS
from tests.harness.coordinating import Client, Coordinator

T0 = 1_700_000_000_000
SUBSCRIPTION = bytes.fromhex("0001 00000001 000174 ffffffff 00000000")
ASSIGNMENT = bytes.fromhex("0001 00000001 000174 00000002 00000000 00000001 ffffffff")


def stable() -> Group:
    group = Group(
        "g",
        T0,
        state=State.STABLE,
        generation=1,
        protocol_type="consumer",
        protocol="range",
    )
    group.add(
        Member(
            member_id="c-1",
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            protocols=(Protocol("range", SUBSCRIPTION),),
            assignment=ASSIGNMENT,
        )
    )
    return group


def test_the_bytes_are_kafkas() -> None:
    place = TopicPartition("t", 0)
    written = offset_record("g", place, Committed(42, -1, "", T0))
    assert written.key == bytes.fromhex("0001 0001 67 0001 74 00000000")
    assert written.value == bytes.fromhex("0003 000000000000002a ffffffff 0000 0000018bcfe56800")
    assert group_key("g") == bytes.fromhex("0002 0001 67")
    new = group_record(Group("g", T0)).value
    assert new == bytes.fromhex("0003 0000 00000000 ffff ffff 0000018bcfe56800 00000000")
    emptied = Group("g", T0, generation=3, protocol_type="consumer")
    assert group_record(emptied).value == bytes.fromhex(
        "0003 0008636f6e73756d6572 00000003 ffff ffff 0000018bcfe56800 00000000"
    )
    assert group_record(stable()).value == bytes.fromhex(
        "0003 0008636f6e73756d6572 00000001 000572616e6765 0003632d31 0000018bcfe56800 00000001"
        "0003632d31 ffff 000163 000a2f3132372e302e302e31 000493e0 0000afc8"
        "00000011" + SUBSCRIPTION.hex() + "00000019" + ASSIGNMENT.hex()
    )


def test_what_is_written_is_read() -> None:
    place = TopicPartition("t", 7)
    for committed in (Committed(42, 3, "m", T0), Committed(42, -1, "m", T0, T0 + 5)):
        written = offset_record("g", place, committed)
        assert read(*written) == OffsetRecord("g", place, committed)
    assert read(offset_key("g", place), None) == OffsetRecord("g", place, None)
    assert read(group_key("g"), None) == GroupRecord("g", None)
    record = read(*group_record(stable()))
    assert record == GroupRecord("g", stable())


def test_an_old_group_has_its_session_timeout_for_joining_too() -> None:
    value = {
        "protocolType": "consumer",
        "generation": 2,
        "protocol": "range",
        "leader": "b",
        "members": [
            {
                "memberId": name,
                "clientId": "c",
                "clientHost": "/h",
                "sessionTimeout": 9_000,
                "subscription": b"",
                "assignment": b"",
            }
            for name in "ab"
        ],
    }
    record = read(group_key("g"), GROUP_RECORDS[2].value.write_versioned(value, 0))
    assert isinstance(record, GroupRecord)
    group = record.found
    assert group is not None
    assert (group.state, group.leader, group.state_since_ms) == (State.STABLE, "b", -1)
    assert [one.rebalance_timeout_ms for one in group.members.values()] == [9_000, 9_000]


def test_a_member_that_is_there_twice_is_no_group() -> None:
    group = stable()
    group.members["again"] = group.members["c-1"]
    with pytest.raises(InvalidRecord, match="c-1 is there twice"):
        read(*group_record(group))


def test_a_group_keeps_its_leader_over_a_restart() -> None:
    coordinator = Coordinator()
    ann = Client("ann", instance_id="a")
    bob = Client("bob")
    coordinator.stable(bob, ann)
    written: list[LogRecord] = coordinator.log
    found = read(*written[-1])
    assert isinstance(found, GroupRecord)
    assert found.found is not None
    found.found.members = dict(reversed(found.found.members.items()))
    coordinator.log.append(group_record(found.found))
    coordinator.restart()
    again = coordinator.at_once(ann.join_request(), JoinAnswer)
    assert (again.error_code, again.leader) == (0, bob.member_id), "ann only follows"
