"""One partition's log on a disk, in Kafka's format.

Nothing here knows Ray, Spark, asyncio or threads.
"""
