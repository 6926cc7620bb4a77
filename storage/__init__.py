"""One partition's log on a disk, in Kafka's format. Knows nothing of Ray, Spark, asyncio or
threads."""
