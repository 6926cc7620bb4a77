"""raylog in 30 lines: ``python examples/quickstart.py``. Leaves nothing behind."""

import tempfile

import pyarrow as pa
import ray

import raylog

with tempfile.TemporaryDirectory() as log_dir, raylog.start([log_dir]) as broker:
    broker.create_topic("greetings", partitions=2)

    # A producer batches, retries, and never writes twice. The key decides the partition.
    with broker.producer() as producer:
        sent = producer.send("greetings", b"hello", key=b"world", headers=[("lang", b"en")])
        print(sent.result())  # waits for the acknowledgement
        producer.send_arrow("greetings", pa.table({"key": ["sea", "sky"], "value": ["ahoy", "hi"]}))

    # Each partition is a Ray actor: any task or actor can call it. It takes and gives Kafka's
    # record batches.
    partition = broker.partition("greetings", 0)
    batch = raylog.encode_records([(1_700_000_000_000, None, b"straight to the actor", [])])
    print(ray.get(partition.append.remote(batch)))

    # A consumer, up to what is there now: records one by one, or poll_arrow() for a table.
    with broker.consumer("greetings", from_="earliest", to="latest") as consumer:
        for record in consumer:
            print(record.partition, record.offset, record.key, record.value, record.headers)
# Leaving the block stopped the broker, and Ray, which it had started.
