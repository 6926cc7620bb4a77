"""One partition's log on a disk, in Apache Kafka's format. Knows nothing of Ray, Spark, asyncio or threads."""
