"""How far a streaming query is behind its topics.

Spark asks the source for its latest offsets with each micro-batch and keeps them in the query's
progress, beside the offsets that the micro-batch ended with. The difference is the lag.
"""

import json
from typing import TYPE_CHECKING

from raylog.cluster.spark import plan
from raylog.cluster.spark.options import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def lag(query: "StreamingQuery") -> dict[TopicPartition, int]:
    """How many offsets each partition had left after the query's last micro-batch.

    Of all raylog sources of the query; empty before its first micro-batch.
    """
    progress = query.lastProgress
    if progress is None:
        return {}
    left: dict[TopicPartition, int] = {}
    for source in progress.sources:
        latest, end = _position(source.latestOffset), _position(source.endOffset)
        for partition, offsets in plan.lag(end, latest).items():
            left[partition] = max(offsets, left.get(partition, 0))
    return left


def _position(text: str | None) -> plan.Offsets:
    """The position in a source's JSON; empty where that is another source's."""
    try:
        return plan.from_json(json.loads(text or "{}"))
    except (AttributeError, TypeError, ValueError):
        return {}
