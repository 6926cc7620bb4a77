"""raylog in 30 lines: ``python examples/quickstart.py``. Leaves nothing behind."""

import tempfile

import pyarrow as pa
import ray

import raylog

with tempfile.TemporaryDirectory() as log_dir, raylog.start([log_dir]) as broker:
    broker.create_topic("greetings", partitions=2)

    # A producer sends batches, retries, and never writes a record twice. Keys decide partitions.
    with broker.producer() as producer:
        sent = producer.send("greetings", b"hello", key=b"world", headers=[("lang", b"en")])
        print(sent.result())  # waits for the acknowledgement
        producer.send_arrow("greetings", pa.table({"key": ["sea", "sky"], "value": ["ahoy", "hi"]}))

    # Each partition is a Ray actor: any task or actor can call it, with Kafka's record batches.
    partition = broker.partition("greetings", 0)
    batch = raylog.encode_records([(1_700_000_000_000, None, b"straight to the actor", [])])
    print(ray.get(partition.append.remote(batch)))

    # A consumer that stops at the current end. It gives single records; poll_arrow() a table.
    with broker.consumer("greetings", from_="earliest", to="latest") as consumer:
        for record in consumer:
            print(record.partition, record.offset, record.key, record.value, record.headers)
# The end of the block stopped the broker, and the Ray that raylog.start() had started.
