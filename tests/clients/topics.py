"""A topic of the broker, seen by raylog's own clients: the other side of each test."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from raylog.cluster.broker import Broker
from raylog.storage.records.batch import iter_batches
from raylog.storage.testing.waiting import wait_for
from tests.clients.program import Record
from tests.harness.librdkafka import Librdkafka

NARROW, WIDE = 2, 16
LEADERS_S = 180.0
SENT_S = 120.0
CODEC_BITS = 7
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")  # in the order of their codes
LOG_END = -1


class Topic:
    """One topic. Tests share it: each looks at what is behind the end that it found."""

    def __init__(self, broker: Broker, name: str, partitions: int) -> None:
        self._broker, self.name, self.partitions = broker, name, partitions

    def wait_for_leaders(self, kafka: Librdkafka) -> None:
        def have_leaders() -> bool:
            return len(kafka.leaders(self.name)) == self.partitions

        wait_for(have_leaders, LEADERS_S, f"each partition of {self.name} has a leader")

    def ends(self) -> dict[int, int]:
        """The end of each partition."""
        wanted = {(self.name, number): LOG_END for number in range(self.partitions)}
        found = self._broker.list_offsets(wanted)
        return {number: offset or 0 for (_, number), offset in found.items()}

    def newest_ms(self, partition: int) -> int:
        """The largest timestamp of a partition's records, 0 if it has none."""
        return max((record.timestamp for record in self.read({partition: 0})), default=0)

    def read(self, starts: Mapping[int, int]) -> list[Record]:
        """The records behind these offsets, in the order of partitions and offsets."""
        # A partition that is left out is not read: from its end to its end.
        all_starts = {**self.ends(), **starts}
        places = {(self.name, number): offset for number, offset in all_starts.items()}
        with self._broker.consumer(self.name, from_=places, to="latest") as consumer:
            found = [
                Record(
                    partition=record.partition,
                    key=record.key,
                    value=record.value,
                    timestamp=record.timestamp,
                    headers=tuple((header.key, header.value) for header in record.headers),
                    offset=record.offset,
                )
                for record in consumer
            ]
        return in_order(found)

    def write(self, records: Iterable[Record], codec: str = "none") -> list[Record]:
        """The same records with their offsets."""
        with self._broker.producer(
            compression_type=codec, delivery_timeout_ms=int(SENT_S * 1000)
        ) as producer:
            sent = [
                (
                    record,
                    producer.send(
                        self.name,
                        record.value,
                        key=record.key,
                        partition=record.partition,
                        timestamp=record.timestamp,
                        headers=record.headers,
                    ),
                )
                for record in records
            ]
            return in_order(
                with_offset(record, future.result(SENT_S).offset) for record, future in sent
            )

    def codecs(self, starts: Mapping[int, int]) -> set[str]:
        """The codecs of the batches on the disk behind these offsets."""
        found = set()
        for number, start in starts.items():
            for path in self._segments(number):
                for _, header in iter_batches(path.read_bytes()):
                    if header.base_offset >= start:
                        found.add(CODEC_NAMES[header.attributes & CODEC_BITS])
        return found

    def active_segment(self, partition: int) -> int:
        """The base offset of the segment that is being written."""
        return max(int(path.stem) for path in self._segments(partition))

    def _segments(self, partition: int) -> list[Path]:
        described = self._broker.describe_topic(self.name).partitions
        [folder] = [part.folder for part in described if part.partition == partition]
        assert folder is not None
        return list(Path(folder).glob("*.log"))


def with_offset(record: Record, offset: int) -> Record:
    return Record(
        record.partition, record.key, record.value, record.timestamp, record.headers, offset
    )


def in_order(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.partition, record.offset))
