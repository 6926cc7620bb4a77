"""Many partitions: metadata, placement, clients, the bridge to Spark, the command line."""
