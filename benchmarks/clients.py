"""What clients cost: by themselves, over a connection that answers at once, and beside
confluent-kafka on a real Kafka.

Every client is warmed up for two seconds and then measured for ten; ``--quick`` has fewer. What a
client takes until its first record has come is told apart from that.
"""

from typing import Any

from benchmarks import clients_beside_kafka, clients_consuming, clients_memory, clients_sending


def run(quick: bool = False) -> list[dict[str, Any]]:
    parts = (clients_sending, clients_consuming, clients_memory, clients_beside_kafka)
    return [figure for part in parts for figure in part.run(quick)]
