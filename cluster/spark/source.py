"""The Python data source ``raylog``: what Spark instantiates for ``spark.read.format("raylog")``.

Spark pickles this class, makes it anew in short-lived Python processes on the driver, and asks it
for a schema and a reader or writer; the readers (``batch.py``, ``stream.py``) and writers
(``sink.py``) do the work. Only processes that run Spark import this module. Each of them imports it
anew, so a method imports what it alone needs.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from raylog.cluster.spark import columns
from raylog.cluster.spark.errors import InvalidSparkOption, InvalidSparkSchema
from raylog.cluster.spark.options import Mode, Options, known, parse, wants_headers

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker
    from raylog.cluster.spark.batch import BatchReader
    from raylog.cluster.spark.sink import BatchSink, StreamSink
    from raylog.cluster.spark.sink_options import SinkOptions
    from raylog.cluster.spark.stream import StreamReader


class RaylogSource(DataSource):
    """Options in, schema, readers and writers out."""

    preset_address: str | None = None  # set by preset(), so that a read need not name them
    preset_namespace: str | None = None

    @classmethod
    def name(cls) -> str:
        return "raylog"

    def schema(self) -> StructType:
        self._refuse_what_no_read_takes()
        return spark_schema(wants_headers(known(self.options)))

    def reader(self, schema: StructType) -> "BatchReader":
        from raylog.cluster.spark.batch import BatchReader

        options = self._parse("batch")
        return BatchReader(options, checked_columns(schema, options.include_headers))

    def streamReader(self, schema: StructType) -> "StreamReader":
        from raylog.cluster.spark.stream import StreamReader

        options = self._parse("stream")
        return StreamReader(options, checked_columns(schema, options.include_headers))

    def writer(self, schema: StructType, overwrite: bool) -> "BatchSink":
        from raylog.cluster.spark.reading import broker_of
        from raylog.cluster.spark.resolve import require_topic
        from raylog.cluster.spark.sink import BatchSink

        if overwrite:
            why = "a log is only appended to; use mode('append'), or delete the topic before"
            raise InvalidSparkOption("mode", "overwrite", why)
        options, columns = self._sink(schema, "batch")
        if options.topic is not None:
            require_topic(broker_of(options), options.topic)
        return BatchSink(options, columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamSink":
        """``overwrite`` is the output mode complete: all rows are written each time.

        Spark calls this twice in each micro-batch, in a new process: here a look for the topic
        would cost a second each time. So the tasks look for it, before they write.
        """
        from raylog.cluster.spark.sink import StreamSink

        return StreamSink(*self._sink(schema, "stream"))

    def _sink(self, schema: StructType, mode: Mode) -> "tuple[SinkOptions, tuple[str, ...]]":
        from raylog.cluster.spark.sink_options import parse_sink
        from raylog.cluster.spark.writing import check_columns

        options = parse_sink(self._with_preset(), mode)
        types = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return options, check_columns(types, options.topic)

    def _parse(self, mode: Mode) -> Options:
        return parse(self._with_preset(), mode)

    def _with_preset(self) -> dict[str, str]:
        preset = {"address": self.preset_address, "namespace": self.preset_namespace}
        return {k: v for k, v in preset.items() if v} | dict(self.options)

    def _refuse_what_no_read_takes(self) -> None:
        """Refuse options that fit neither a batch read nor a stream.

        Spark asks for a schema before it says whether it reads or streams.
        """
        try:
            self._parse("batch")
        except InvalidSparkOption as wrong:
            try:
                self._parse("stream")
            except InvalidSparkOption:
                raise wrong from None


def preset(broker: "Broker") -> type[RaylogSource]:
    """The source with a broker's address and namespace filled in.

    It is pickled by value, unlike its base.
    """
    given = {"preset_address": broker.address, "preset_namespace": broker.namespace}
    return type("RaylogSource", (RaylogSource,), given)


def spark_schema(include_headers: bool) -> StructType:
    """The schema of a read without one of the user's."""
    return from_arrow_schema(columns.schema(columns.names(include_headers)))


def checked_columns(schema: StructType, include_headers: bool) -> list[str]:
    """The column names of a schema.

    Raises InvalidSparkSchema if it is no subset of the source's schema.
    """
    full = spark_schema(True)
    for field in schema.fields:
        if field.name not in full.names:
            why = f"unknown column; the columns are {', '.join(full.names)}"
            raise InvalidSparkSchema(field.name, field.dataType.simpleString(), why)
        have = full[field.name].dataType.simpleString()
        if field.dataType.simpleString() != have:
            why = f"the source has the type {have}; use this type, and cast afterwards"
            raise InvalidSparkSchema(field.name, field.dataType.simpleString(), why)
    if "headers" in schema.names and not include_headers:
        why = (
            "headers are read only with the option includeHeaders=true; set it, or omit the column"
        )
        raise InvalidSparkSchema("headers", full["headers"].dataType.simpleString(), why)
    return list(schema.names)
