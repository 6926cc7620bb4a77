"""Our errors as the codes of Kafka's protocol.

Every error of raylog carries Kafka's code. One code never leaves by a socket: 89, "throttled".
librdkafka and aiokafka take it for final and drop the records. They are answered 19, which every
client retries.
"""

from typing import Final

from raylog.storage.errors import RaylogError

THROTTLED: Final = 89
NOT_ENOUGH_REPLICAS: Final = 19


def code_of(error: RaylogError) -> int:
    """The code that a client is answered."""
    return NOT_ENOUGH_REPLICAS if error.code == THROTTLED else error.code
