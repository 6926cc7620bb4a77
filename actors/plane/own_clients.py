"""What answers tell raylog's own clients beside Kafka's fields: tagged fields of a partition.

A client that calls itself ``raylog`` gets them in the flexible versions of Produce, Fetch and
ListOffsets. Every other client would pass over them (KIP-482), and is not sent any. The tags are
far above those that Kafka gives.

=======  ================  =====================================================================
tag      of                content
=======  ================  =====================================================================
10000    all three         with an error: JSON, the class, its arguments and its sentence
10001    Fetch             of batches: no batch of the log has a higher leader epoch (4); behind
                           all offsets of these (8). No CRC covers what these two bound.
=======  ================  =====================================================================

An error code alone would lose what an error says: which disk, which limit, what to do.
"""

import json
from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING, Final

from raylog.actors.plane.frames import Request
from raylog.actors.plane.hot.parts import Tags
from raylog.storage.errors import RaylogError

if TYPE_CHECKING:  # it needs numpy, and a command that lists topics does not
    from raylog.storage.readable import LogRead

CLIENT_ID: Final = "raylog"
ERROR_TAG, BOUNDS_TAG = 10_000, 10_001
BOUNDS: Final = Struct(">iq")


def is_own(request: Request) -> bool:
    """Whether raylog's own client asks, in a version that has tagged fields."""
    return request.client_id == CLIENT_ID and request.api.is_flexible(request.version)


def error_tags(request: Request, error: RaylogError) -> Tags:
    """The tagged field of an error; none for a client of somebody else."""
    if not is_own(request):
        return {}
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    content = json.dumps([name, error.args, str(error)], default=str)
    return {ERROR_TAG: content.encode()}


def bounds_tags(request: Request, read: "LogRead") -> Tags:
    """The tagged field of what a fetch has found; none for a client of somebody else."""
    if not is_own(request):
        return {}
    return {BOUNDS_TAG: BOUNDS.pack(read.leader_epoch, read.end_offset)}


def read_error(content: bytes) -> RaylogError:
    """The error of a tagged field; a plain RaylogError where its class is not known here."""
    name, arguments, sentence = json.loads(content)
    module, _, kind = name.rpartition(".")
    if not module.startswith("raylog."):
        return RaylogError(sentence)
    try:
        found = getattr(import_module(module), kind)
        if isinstance(found, type) and issubclass(found, RaylogError):
            return found(*arguments)
    except (ImportError, AttributeError, TypeError):
        pass  # of another release of raylog
    return RaylogError(sentence)
