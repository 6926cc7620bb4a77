"""raylog: a durable, partitioned, replayable log inside a Ray cluster, in Apache Kafka's on-disk
format.

``start`` and ``connect`` return a :class:`~raylog.cluster.broker.Broker`; ``raylog.spark`` holds
the bridge to Spark; ``encode_records``, ``decode_records`` and ``decode_table`` make and read the
record batches that go through the handles of ``Broker.partition``. Everything here is imported on
first use, so that ``import raylog.storage`` needs no Ray.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Broker",
    "RaylogError",
    "connect",
    "decode_records",
    "decode_table",
    "encode_records",
    "spark",
    "start",
]

if TYPE_CHECKING:
    from raylog.cluster import spark
    from raylog.cluster.broker import Broker, connect, start
    from raylog.storage.errors import RaylogError
    from raylog.storage.records.decode import decode_records, decode_table
    from raylog.storage.records.encode import encode_records

_HOMES = {
    "Broker": "raylog.cluster.broker",
    "RaylogError": "raylog.storage.errors",
    "connect": "raylog.cluster.broker",
    "decode_records": "raylog.storage.records.decode",
    "decode_table": "raylog.storage.records.decode",
    "encode_records": "raylog.storage.records.encode",
    "start": "raylog.cluster.broker",
}


def __getattr__(name: str) -> Any:
    if name == "spark":
        return import_module("raylog.cluster.spark")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'raylog' has no attribute {name!r}")
