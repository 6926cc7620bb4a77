"""What kafka-dump-log prints of a partition's files, line by line.

Also the decoders of Kafka's own topics.
"""
