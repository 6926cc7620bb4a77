"""The producer: see ``producer.py``."""

from raylog.cluster.client.producer.asynchronous import AsyncProducer
from raylog.cluster.client.producer.delivery import RecordMetadata, SentRecord
from raylog.cluster.client.producer.producer import Producer

__all__ = ["AsyncProducer", "Producer", "RecordMetadata", "SentRecord"]
