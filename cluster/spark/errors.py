"""The errors of the bridge to Spark: what happened, and what to do.

They are raylog errors like all others (see ``raylog.errors``). Spark shows the name of the class
and the sentence in its own ``AnalysisException`` or ``StreamingQueryException``.
"""

from typing import Any

from raylog.storage.errors import RaylogError


class SparkUnavailable(RaylogError):
    """Spark cannot start here: a package or Java is missing."""

    fields = ("missing", "remedy")
    missing: str
    remedy: str
    template = "Spark on Ray needs {missing}: {remedy}"


class SparkSessionExists(RaylogError):
    """A Spark session is already running.

    RayDP allows one session per process, and one per name in a Ray namespace.
    """

    fields = ("app_name",)
    app_name: str
    template = (
        "the Spark session {app_name!r} is already running; use it, or stop it first. If another "
        "process runs it, choose another app_name"
    )


class InvalidSparkOption(RaylogError):
    """The ``raylog`` data source has no such option, or the value is not valid for it."""

    code, error_name = 40, "INVALID_CONFIG"
    fields = ("option", "value", "why")
    option: str
    value: Any
    why: str
    template = "option {option}={value!r}: {why}"


class InvalidSparkSchema(RaylogError):
    """The schema that the user gave is not a subset of the source's columns."""

    fields = ("column", "type_name", "why")
    column: str
    type_name: str
    why: str
    template = "column {column} {type_name}: {why}"


class DataLoss(RaylogError):
    """Records that a query must read are gone, or their partition is gone."""

    code, error_name = 1, "OFFSET_OUT_OF_RANGE"
    fields = ("partition", "start", "end", "why")
    partition: str
    start: int
    end: int
    why: str
    template = (
        "{partition}: offsets [{start}, {end}) cannot all be read: {why}; if retention deleted "
        "them, raise it; start from other offsets (a stream: with a new checkpoint), or set "
        "failOnDataLoss=false to continue with the remaining records"
    )
