"""The consumer. ``consumer.py`` is what users call; ``machine.py`` decides."""

from raylog.cluster.client.consumer.async_consumer import AsyncConsumer
from raylog.cluster.client.consumer.consumer import Consumer
from raylog.cluster.client.consumer.group.messages import OffsetAndMetadata
from raylog.cluster.client.consumer.instructions import OffsetAndEpoch
from raylog.storage.records.record import ConsumerRecord

__all__ = ["AsyncConsumer", "Consumer", "ConsumerRecord", "OffsetAndEpoch", "OffsetAndMetadata"]
