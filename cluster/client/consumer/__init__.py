"""The consumer. ``consumer.py`` is what users call; ``machine.py`` decides."""

from raylog.cluster.client.consumer.consumer import Consumer
from raylog.storage.records.record import ConsumerRecord

__all__ = ["Consumer", "ConsumerRecord"]
