"""Spark's own connector for Kafka at work: one step for each line that comes in, told as JSON.

``python connector.py JARS SERVERS FOLDER``, in an environment of its own: the connector wants the
pyspark of its version. Each step is a JSON object: ``do`` and its arguments.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, col, lit, struct, when

FORMAT = "kafka"
NULL_EVERY = 10  # rows


class Steps:
    """The steps of a session; each returns what is told."""

    def __init__(self, jars: str, servers: str, folder: str) -> None:
        self._servers, self._folder = servers, folder
        self._spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", jars)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "512m")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.local.dir", folder)
            .getOrCreate()
        )
        self._spark.sparkContext.setLogLevel("OFF")

    def version(self) -> str:
        return str(self._spark.version)

    def read(self, topic: str, **options: str) -> list[dict[str, Any]]:
        """The records of a topic, as a batch."""
        reading = self._spark.read.format(FORMAT).option("kafka.bootstrap.servers", self._servers)
        options = {"subscribe": topic, "includeHeaders": "true", **options}
        rows = reading.options(**options).load().orderBy("partition", "offset").collect()
        return [
            {
                "partition": row.partition,
                "offset": row.offset,
                "key": _text(row.key),
                "value": _text(row.value),
                "timestamp": int(row.timestamp.timestamp() * 1000),
                "headers": [[header.key, _text(header.value)] for header in row.headers or ()],
            }
            for row in rows
        ]

    def write(self, topic: str, count: int, codec: str, **options: str) -> int:
        """Numbers as records: every tenth without a value, each with a header."""
        text = col("id").cast("string")
        rows = self._spark.range(count).select(
            text.alias("key"),
            when(col("id") % NULL_EVERY == 0, lit(None)).otherwise(text).alias("value"),
            array(
                struct(lit("source").alias("key"), lit("spark").cast("binary").alias("value"))
            ).alias("headers"),
        )
        options = {"includeHeaders": "true", "kafka.compression.type": codec, **options}
        self._writing(rows, topic).options(**options).save()
        return count

    def _writing(self, rows: DataFrame, topic: str) -> Any:
        writing = rows.write.format(FORMAT).option("kafka.bootstrap.servers", self._servers)
        return writing.option("topic", topic)

    def copy(self, source: str, target: str) -> int:
        """What is new in a topic goes into another one, as a stream; returns the rows."""
        rows = (
            self._spark.readStream.format(FORMAT)
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .load()
            .select("key", "value")
        )
        query = (
            rows.writeStream.format(FORMAT)
            .option("kafka.bootstrap.servers", self._servers)
            .option("topic", target)
            .option("checkpointLocation", f"{self._folder}/checkpoint-{source}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(progress.numInputRows for progress in query.recentProgress)


def _text(content: Any) -> str | None:
    return None if content is None else bytes(content).decode()


def main() -> None:
    steps = Steps(*sys.argv[1:])
    for line in sys.stdin:
        wanted = json.loads(line)
        try:
            answer: Any = {"answer": getattr(steps, wanted.pop("do"))(**wanted)}
        except Exception as error:  # whatever Spark raises is told
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


main()
