"""raylog: a durable, partitioned, replayable log inside a Ray cluster, in Apache Kafka's on-disk
format.

=================================================== ===============================================
``start``, ``connect``                              start a broker, or find the one that runs; both
                                                    return a :class:`~raylog.cluster.broker.Broker`
``encode_records``, ``decode_records``,             make and read record batches, for calls to the
``decode_table``                                    actor handles of ``Broker.partition``
``raylog.spark``                                    the data source and the session for Spark
``raylog.errors``                                   every error class; ``RaylogError`` is the root
=================================================== ===============================================

Everything here is imported on first use, so ``import raylog.storage`` needs no Ray.
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
    "errors",
    "spark",
    "start",
]

if TYPE_CHECKING:
    from raylog import errors
    from raylog.cluster import spark
    from raylog.cluster.broker import Broker
    from raylog.cluster.start import connect, start
    from raylog.storage.errors import RaylogError
    from raylog.storage.records.decode import decode_records, decode_table
    from raylog.storage.records.encode import encode_records

_MODULES = {"errors": "raylog.errors", "spark": "raylog.cluster.spark"}
_HOMES = {
    "Broker": "raylog.cluster.broker",
    "RaylogError": "raylog.storage.errors",
    "connect": "raylog.cluster.start",
    "decode_records": "raylog.storage.records.decode",
    "decode_table": "raylog.storage.records.decode",
    "encode_records": "raylog.storage.records.encode",
    "start": "raylog.cluster.start",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'raylog' has no attribute {name!r}")
