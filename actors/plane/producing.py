"""Answers Produce: each partition's batch is appended, in the order of the request.

A batch lies in the buffer of its frame and is written from there. ``acks`` 1 and -1 are one thing
with one replica: an answer means what the topic's ``flush.messages`` asks for. With ``acks`` 0
there is no answer; where something went wrong the connection is closed, which is all that such a
producer can be told. Source: ``KafkaApis.handleProduceRequest`` of Kafka.

Requests that came behind each other are answered together: their batches are written one by one,
in order, and then brought to the disk by one fsync. So a producer with several requests on their
way waits for its disk once, as several producers do, which share an fsync.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from raylog.actors.coordinators.transactions.transaction import VERSION_1, VERSION_2
from raylog.actors.errors import NotInTransaction
from raylog.actors.partition.partition import Written
from raylog.actors.plane.codes import (
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    UNSUPPORTED_COMPRESSION_TYPE,
    code_of,
)
from raylog.actors.plane.connection import LastAnswer
from raylog.actors.plane.errors import NotAcknowledged
from raylog.actors.plane.frames import Request
from raylog.actors.plane.hosts import Host, Hosts
from raylog.actors.plane.hot.parts import Topic
from raylog.actors.plane.hot.produce import (
    PartitionRecords,
    ProduceBody,
    ProducedPartition,
    produce_answer,
    read_produce,
)
from raylog.actors.plane.own_clients import error_tags
from raylog.actors.plane.transactions.beginning import beginning
from raylog.actors.plane.transactions.verifying import Verifier, Writer, problem_of
from raylog.storage.buffers import Buffer
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.records.batch import read_header, size_of
from raylog.storage.records.compression import CODECS
from raylog.storage.records.layout import (
    AT_ATTRIBUTES,
    AT_BASE_OFFSET,
    AT_LENGTH,
    AT_MAGIC,
    CODEC_MASK,
    HEADER_SIZE,
)

NO_ANSWER, OF_THE_LEADER, OF_ALL = 0, 1, -1
_NO_OFFSET: Final = -1
_FIRST_WITH_ZSTD: Final = 7  # of Produce: KIP-110
_ADDS_PARTITIONS_FROM: Final = 12  # of Produce: version 2 of transactions (KIP-890)
_OLD_MAGICS: Final = (0, 1)
_FROM_ZERO: Final = bytes(8)  # a client's base offset


class _Pending(NamedTuple):
    """A batch that is written, and may not be on the disk yet; and where its fate belongs."""

    request: Request
    host: Host
    written: Written
    fates: list[ProducedPartition]
    place: int


class _Taken(NamedTuple):
    """A request whose batches are written, or refused."""

    request: Request
    acks: int
    topics: list[Topic[ProducedPartition]]


class _Taking:
    """Writes the batches of requests, and brings them to the disk together."""

    def __init__(self, hosts: Hosts, verifier: Verifier | None) -> None:
        self._hosts, self._verifier = hosts, verifier
        self._pending: dict[tuple[bytes, int], list[_Pending]] = {}  # by partition

    def take(self, request: Request) -> _Taken:
        """Write the batches of one more request. Raises MalformedRequest."""
        body = read_produce(request)
        topics = [Topic[ProducedPartition](one.name, one.topic_id, []) for one in body.topics]
        for asked, told in zip(body.topics, topics, strict=True):
            for part in asked.partitions:
                told.partitions.append(self._write(request, body, asked, part, told.partitions))
        return _Taken(request, body.acks, topics)

    def _write(
        self,
        request: Request,
        body: ProduceBody,
        topic: Topic[PartitionRecords],
        part: PartitionRecords,
        fates: list[ProducedPartition],
    ) -> ProducedPartition:
        """What becomes of a batch, as far as it is known."""
        if body.acks not in (NO_ANSWER, OF_THE_LEADER, OF_ALL):
            return ProducedPartition(part.partition, INVALID_REQUIRED_ACKS, _NO_OFFSET)
        host = self._hosts.find(topic.name, topic.topic_id, part.partition)
        if isinstance(host, int):
            return ProducedPartition(part.partition, host, _NO_OFFSET)
        if part.records is None or not _is_a_clients(part.records):
            return ProducedPartition(part.partition, INVALID_RECORD, _NO_OFFSET)
        if request.version < _FIRST_WITH_ZSTD and _codec_of(part.records) == CODECS["zstd"]:
            return ProducedPartition(part.partition, UNSUPPORTED_COMPRESSION_TYPE, _NO_OFFSET)
        try:
            written = self._write_to(host, request, body, part.records)
        except RaylogError as error:
            return _refused(request, host, error)
        pending = _Pending(request, host, written, fates, len(fates))
        self._pending.setdefault((host.topic_id, host.number), []).append(pending)
        return ProducedPartition(part.partition, 0, _NO_OFFSET)  # until ``settle``

    def _write_to(
        self, host: Host, request: Request, body: ProduceBody, records: Buffer
    ) -> Written:
        """Write a batch; of the first one of a transaction its coordinator is asked.

        Raises RaylogError.
        """
        try:
            return host.partition.write_admitted(records)
        except NotInTransaction:
            if body.transactional_id is None or self._verifier is None:
                raise
        header = read_header(records)
        version = VERSION_2 if request.version >= _ADDS_PARTITIONS_FROM else VERSION_1
        writer = Writer(body.transactional_id, header.producer_id, header.producer_epoch, version)
        name = TopicPartition(host.topic, host.number)
        with beginning(host.partition, name, self._verifier, writer) as code:
            if code:
                problem = problem_of(code, str(name), writer)
                host.partition.refuse(header, problem)
                raise problem
            return host.partition.write_admitted(records)

    def settle(self) -> None:
        """Tell what became of all that is written: each partition's with one fsync."""
        for pending in self._pending.values():
            host = pending[0].host
            try:
                results = host.partition.settle([one.written for one in pending])
            except RaylogError as error:
                for one in pending:
                    one.fates[one.place] = _refused(one.request, host, error)
                continue
            for one, result in zip(pending, results, strict=True):
                one.fates[one.place] = ProducedPartition(
                    host.number,
                    0,
                    result.base_offset,
                    result.log_append_time,
                    result.log_start_offset,
                )


def produce(
    requests: Iterable[Request], hosts: Hosts, verifier: Verifier | None = None
) -> list[bytes]:
    """The answers to Produce requests; one with ``acks`` 0 has none.

    ``verifier``: asks the coordinators of transactions; None: no transaction begins here.

    Raises LastAnswer with the answers so far where one is malformed, or is not acknowledged.
    """
    taking = _Taking(hosts, verifier)
    taken: list[_Taken] = []
    problem: RaylogError | None = None
    try:
        for request in requests:
            taken.append(taking.take(request))
    except RaylogError as error:
        problem = error
    taking.settle()
    answers: list[bytes] = []
    for request, acks, topics in taken:
        if acks != NO_ANSWER:
            answers.append(produce_answer(request, topics))
            continue
        refused = _not_acknowledged(topics)
        if refused is not None:
            raise LastAnswer(answers, refused)
    if problem is not None:
        raise LastAnswer(answers, problem)
    return answers


def _is_a_clients(records: Buffer) -> bool:
    """Whether these bytes begin with a whole batch of a client: of version 2, from offset 0 on."""
    return (
        len(records) >= HEADER_SIZE
        and size_of(records) <= len(records)
        and records[AT_MAGIC] not in _OLD_MAGICS
        and records[AT_BASE_OFFSET:AT_LENGTH] == _FROM_ZERO
    )


def _codec_of(records: Buffer) -> int:
    return records[AT_ATTRIBUTES + 1] & CODEC_MASK


def _not_acknowledged(topics: Iterable[Topic[ProducedPartition]]) -> NotAcknowledged | None:
    for topic in topics:
        for part in topic.partitions:
            if part.error_code:
                return NotAcknowledged(topic.name, part.partition, part.error_code)
    return None


def _refused(request: Request, host: Host, error: RaylogError) -> ProducedPartition:
    return ProducedPartition(
        partition=host.number,
        error_code=code_of(error),
        base_offset=_NO_OFFSET,
        log_start_offset=host.partition.log.log_start_offset,
        error_message=str(error),
        more_tags=error_tags(request, error),
    )
