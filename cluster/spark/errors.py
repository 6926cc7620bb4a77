"""What can go wrong between Spark and raylog, by name, each with what to do about it.

They are raylog errors like any other (see ``raylog.storage.errors``): Spark shows the class's name
and the sentence in its own ``AnalysisException`` or ``StreamingQueryException``.
"""

from raylog.storage.errors import RaylogError


class SparkUnavailable(RaylogError):
    """Spark cannot be started here: a package or Java is missing."""

    fields = ("missing", "remedy")
    template = "Spark on Ray needs {missing}: {remedy}"


class SparkSessionExists(RaylogError):
    """RayDP holds one Spark session a process, and one of each name in a Ray namespace."""

    fields = ("app_name",)
    template = (
        "the Spark session {app_name!r} runs already: use it, or stop it first; "
        "if another process runs it, give another app_name"
    )


class InvalidSparkOption(RaylogError):
    """An option of the ``raylog`` data source that does not exist, or a value that it cannot
    have."""

    code, error_name = 40, "INVALID_CONFIG"
    fields = ("option", "value", "why")
    template = "option {option}={value!r}: {why}"


class InvalidSparkSchema(RaylogError):
    """A schema given by the user that is no subset of the source's columns."""

    fields = ("column", "type_name", "why")
    template = "column {column} {type_name}: {why}"


class DataLoss(RaylogError):
    """Records that a query was to read are gone, or its partition is."""

    code, error_name = 1, "OFFSET_OUT_OF_RANGE"
    fields = ("partition", "start", "end", "why")
    template = (
        "{partition}: offsets [{start}, {end}) cannot all be read: {why}. Raise retention, start "
        "from other "
        "offsets (a stream: with a new checkpoint), or set failOnDataLoss=false to go on with what "
        "is left"
    )
