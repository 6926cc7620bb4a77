"""What the broker's actors log: one line an event, in logfmt.

People, grep and log stores can all read it::

    at=2026-11-21T13:47:27.202Z level=INFO actor=Log:orders-0 pid=2348 event=log-opened seconds=0.01

An event's name is two or three words, the thing first; its fields are Kafka's nouns with their
units last. Text with spaces is quoted, a traceback stays on its line (``exc_info="..."``, with its
line ends as ``\\n``).

**Where the lines go.** To the standard error of the actor's process, which Ray keeps on the actor's
node in ``<session dir>/logs/worker-<worker id>-<job id>-<pid>.err``
(``/tmp/ray/session_latest/logs`` unless Ray was started with another temp dir), and shows on its
dashboard. ``ray logs actor --id <actor id> --err`` prints them. What a program that uses raylog
logs itself is its own business: nothing here touches it.
"""

import logging
import sys
import time

from logfmter import Logfmter

LOGGER = "raylog"
# What the standard library calls the first columns.
_ATTRIBUTES = {"at": "asctime", "level": "levelname", "actor": "processName", "pid": "process"}
_OF_RAY = "_ray_timestamp_ns"  # importing Ray adds it to every record


class Lines(Logfmter):
    """Makes a line of a record. Times are ISO 8601 in UTC, with milliseconds."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, actor: str) -> None:
        super().__init__(["at", "level", "actor", "pid"], _ATTRIBUTES, ignored_keys=[_OF_RAY])
        self._actor = actor

    def format(self, record: logging.LogRecord) -> str:
        record.processName = self._actor  # an actor is a process
        return super().format(record)


def event(
    logger: logging.Logger,
    name: str,
    *,
    level: int = logging.INFO,
    trace: bool = False,
    **fields: object,
) -> None:
    """Log one event. ``trace`` adds the traceback of the exception that is being handled."""
    logger.log(
        level,
        {"event": name, **{key: _short(value) for key, value in fields.items()}},
        exc_info=trace,
    )


def warn(logger: logging.Logger, name: str, *, trace: bool = False, **fields: object) -> None:
    """An event that somebody should look at."""
    event(logger, name, level=logging.WARNING, trace=trace, **fields)


def set_up_logs(actor: str) -> None:
    """Send raylog's lines, from INFO on, to this process's standard error.

    Every actor calls it when it begins. ``actor``: its name.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(actor))
    logger = logging.getLogger(LOGGER)
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _short(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value
