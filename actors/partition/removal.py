"""The right to remove records from a log. Knows no Ray.

Retention, compaction's swap and ``delete_records`` need a config that the Controller has confirmed
(``actors/node/confirmations.py``), and that is the one which the log obeys at this moment.
"""

from collections.abc import Callable
from functools import partial

from raylog.actors.errors import ConfigUnconfirmed
from raylog.actors.messages import Confirmed
from raylog.storage.clock import Clock
from raylog.storage.names import TopicPartition

# Called with the version of the config that the log obeys, with the lock held that a change of the
# config takes. It raises ConfigUnconfirmed where nothing may be removed under it.
Permit = Callable[[int], None]


def any_version(obeyed: int) -> None:
    """The permit of whoever owns the log alone, and its config with it."""


def permit(
    partition: TopicPartition, topic_id: str, confirmed: Confirmed | None, clock: Clock
) -> Permit:
    """The permit that ``confirmed`` gives for a log. ``clock``: the node's ``SteadyClock``."""
    return partial(_check, partition, topic_id, confirmed, clock)


def _check(
    partition: TopicPartition,
    topic_id: str,
    confirmed: Confirmed | None,
    clock: Clock,
    obeyed: int,
) -> None:
    if confirmed is None or confirmed.topic_id != topic_id:
        why = "the Controller has not confirmed its config within the last seconds"
    elif confirmed.version != obeyed:
        why = f"it obeys version {obeyed} of its config, and version {confirmed.version} is wanted"
    elif clock.now_ms() >= confirmed.until_ms:
        why = "the confirmation of its config is too old"
    else:
        return
    raise ConfigUnconfirmed(str(partition), why)
