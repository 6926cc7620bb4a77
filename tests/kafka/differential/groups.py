"""Questions about groups, to their coordinator.

A group has one member at most, so that no answer waits for another member: it joins, syncs, commits
and leaves, with wrong ids and generations in between. No timeout ends anything while a test runs.
"""

from collections.abc import Iterable
from typing import Any, Final

from raylog.actors.plane.apis.groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from raylog.storage.schemas.consumer_protocol import SUBSCRIPTION
from raylog.storage.schemas.types import Value
from tests.kafka.differential.question import (
    OF_GROUPS,
    Draw,
    Generation,
    Knowledge,
    MemberId,
    Question,
)
from tests.kafka.differential.records import PLAIN

DYNAMIC: Final = ("dynamic-a", "dynamic-b")
STATIC: Final = "static"  # its member has an instance id
SIMPLE: Final = "simple"  # nobody joins it
GROUPS: Final = (*DYNAMIC, STATIC, SIMPLE)
INSTANCE: Final = "instance"
FIRST_STATIC: Final = 5  # of JoinGroup
LONG_MS: Final = 1_700_000
# Behind the version. Kafka never ends the rebalance of a group with a subscription that lies.
SUBSCRIBED: Final = bytes(2) + SUBSCRIPTION.write({"topics": [PLAIN], "userData": None}, 0)


class Groups:
    """Makes questions. ``side``: tells who is in a group."""

    def __init__(self, side: Knowledge) -> None:
        self._side = side

    def join(self, draw: Draw) -> Question:
        group = draw.usually(draw.one(*DYNAMIC, STATIC), "")
        is_static = group == STATIC
        first = FIRST_STATIC if is_static else 0
        version = draw.random.randint(first, JOIN_GROUP.last_version)
        member: Any = draw.usually(MemberId(group), "no-such")
        if self._side.member(group) is None:
            member = draw.usually("", "no-such")
        elif is_static:
            member = draw.one(MemberId(group), "", "no-such")
        protocols = [{"name": "range", "metadata": SUBSCRIBED}]
        body: Value = {
            "groupId": group,
            "sessionTimeoutMs": draw.usually(LONG_MS, 5_999, 1_800_001),
            "rebalanceTimeoutMs": LONG_MS,
            "memberId": member,
            "groupInstanceId": INSTANCE if is_static else None,
            "protocolType": draw.usually("consumer", "consumer", "connect", ""),
            "protocols": draw.usually(protocols, protocols, [], [_ROUNDROBIN, *protocols]),
            "reason": draw.usually(None, "why not"),
        }
        return Question(JOIN_GROUP, version, body, OF_GROUPS)

    def sync(self, draw: Draw) -> Question:
        who = self._who(draw)
        assignment = {"memberId": who["memberId"], "assignment": draw.one(b"all", b"")}
        body = {
            **who,
            "protocolType": draw.usually(None, "consumer", "connect"),
            "protocolName": draw.usually(None, "range", "roundrobin"),
            "assignments": draw.usually([assignment], []),
        }
        return Question(SYNC_GROUP, draw.version(SYNC_GROUP), body, OF_GROUPS)

    def _who(self, draw: Draw) -> Value:
        group = draw.usually(draw.one(*GROUPS), "", "absent")
        return {
            "groupId": group,
            "generationId": draw.usually(Generation(group), Generation(group, 1), -1, 0),
            "memberId": draw.usually(MemberId(group), "no-such", ""),
            "groupInstanceId": draw.usually(INSTANCE if group == STATIC else None, None, "other"),
        }

    def heartbeat(self, draw: Draw) -> Question:
        return Question(HEARTBEAT, draw.version(HEARTBEAT), self._who(draw), OF_GROUPS)

    def leave(self, draw: Draw) -> Question:
        version, who = draw.version(LEAVE_GROUP), self._who(draw)
        if version < 3:
            body = {"groupId": who["groupId"], "memberId": who["memberId"]}
        else:
            leaving = {
                "memberId": who["memberId"],
                "groupInstanceId": who["groupInstanceId"],
                "reason": None,
            }
            strange = {"memberId": "no-such", "groupInstanceId": None, "reason": "?"}
            members = draw.usually([leaving], [], [leaving, strange], [strange])
            body = {"groupId": who["groupId"], "members": members}
        return Question(LEAVE_GROUP, version, body, OF_GROUPS)

    def commit(self, draw: Draw) -> Question:
        version, who = draw.version(OFFSET_COMMIT), self._who(draw)
        if draw.chance(0.4):
            who |= {"generationId": -1, "memberId": "", "groupInstanceId": None}
        body = {
            "groupId": who["groupId"],
            "generationIdOrMemberEpoch": who["generationId"],
            "memberId": who["memberId"],
            "groupInstanceId": who["groupInstanceId"],
            "topics": committed_topics(draw),
        }
        return Question(OFFSET_COMMIT, version, body, OF_GROUPS)

    def fetch(self, draw: Draw) -> Question:
        version = draw.version(OFFSET_FETCH)

        def topics() -> Any:
            wanted = [{"name": name, "partitionIndexes": [0, 1]} for name in _topics(draw)]
            return draw.usually(wanted, None) if version >= 2 else wanted

        def group() -> str:
            return draw.usually(draw.one(*GROUPS), "", "absent")

        body: Value
        if version < 8:
            body = {"groupId": group(), "topics": topics()}
        else:
            names = dict.fromkeys(draw.some(2, group))
            who = {"memberId": None, "memberEpoch": -1}
            body = {"groups": [{"groupId": name, **who, "topics": topics()} for name in names]}
        body["requireStable"] = draw.one(True, False)
        return Question(OFFSET_FETCH, version, body, OF_GROUPS)

    def delete_offsets(self, draw: Draw) -> Question:
        partitions = [{"partitionIndex": draw.usually(0, 1, 9, -1)}]
        body = {
            "groupId": draw.usually(draw.one(*GROUPS), "", "absent"),
            "topics": [{"name": name, "partitions": partitions} for name in _topics(draw)],
        }
        return Question(OFFSET_DELETE, 0, body, OF_GROUPS)

    def describe(self, draw: Draw) -> Question:
        wanted = draw.some(3, lambda: draw.usually(draw.one(*GROUPS), "", "absent"))
        body = {"groups": wanted, "includeAuthorizedOperations": False}
        return Question(DESCRIBE_GROUPS, draw.version(DESCRIBE_GROUPS), body, OF_GROUPS)

    def list(self, draw: Draw) -> Question:
        states = draw.usually([], ["Stable"], ["stable", "Empty"], ["Dead"], ["nonsense"])
        types = draw.usually([], ["classic"], ["Classic"], ["consumer"], ["nonsense"])
        body = {"statesFilter": states, "typesFilter": types}
        return Question(LIST_GROUPS, draw.version(LIST_GROUPS), body, OF_GROUPS)

    def delete(self, draw: Draw) -> Question:
        wanted = draw.some(2, lambda: draw.usually(draw.one(*GROUPS), "", "absent"))
        return Question(
            DELETE_GROUPS, draw.version(DELETE_GROUPS), {"groupsNames": wanted}, OF_GROUPS
        )


_ROUNDROBIN: Final = {"name": "roundrobin", "metadata": SUBSCRIBED}


def _topics(draw: Draw) -> Iterable[str]:
    """No topic twice: no client does that, and answers differ in how they are laid out."""
    return dict.fromkeys(draw.some(2, lambda: draw.usually(PLAIN, "small", "no-such", "")))


def committed_topics(draw: Draw) -> list[Value]:
    """Of OffsetCommit and TxnOffsetCommit."""

    def partition(number: int) -> Value:
        return {
            "partitionIndex": number,
            "committedOffset": draw.usually(draw.random.randrange(100), -1, 2**63 - 1),
            "committedLeaderEpoch": draw.usually(-1, 0, 5),
            "committedMetadata": draw.usually("", None, "note", "m" * 4096, "m" * 4097),
        }

    def numbers() -> Iterable[int]:
        return dict.fromkeys(draw.some(2, lambda: draw.usually(0, 1, 9, -1)))

    return [
        {"name": name, "partitions": [partition(number) for number in numbers()]}
        for name in _topics(draw)
    ]
