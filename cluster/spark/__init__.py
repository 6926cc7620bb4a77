"""The bridge into Spark: ``raylog.spark``.

``session(broker)`` starts Spark on Ray with the data source ``raylog`` registered (``register``
does that for a Spark that you started yourself); ``frame`` moves records through Ray's object store
instead; ``lag`` tells how far a stream is behind; ``stop`` ends the session. Nothing here imports
pyspark or raydp before it is used, so a broker runs without Java.
"""

from raylog.cluster.spark.frames import frame
from raylog.cluster.spark.progress import lag
from raylog.cluster.spark.session import register, session, stop

__all__ = ["frame", "lag", "register", "session", "stop"]
