"""Answers DescribeProducers: the producers that a partition knows, and their open transactions.

Source: ``ReplicaManager.activeProducerState`` of Kafka; KIP-664.
"""

from raylog.actors.plane.frames import Request, answer, read_body
from raylog.actors.plane.hosts import Host, Hosts
from raylog.actors.plane.hot.parts import NO_TOPIC_ID
from raylog.storage.schemas.types import Value


def describe_producers(request: Request, hosts: Hosts) -> bytes:
    """The answer to a DescribeProducers request."""
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                _described(hosts, topic["name"], index) for index in topic["partitionIndexes"]
            ],
        }
        for topic in read_body(request)["topics"]
    ]
    return answer(request, {"throttleTimeMs": 0, "topics": topics})


def _described(hosts: Hosts, name: str, index: int) -> Value:
    found = hosts.find(name, NO_TOPIC_ID, index)
    error_code = found if isinstance(found, int) else 0
    return {
        "partitionIndex": index,
        "errorCode": error_code,
        "errorMessage": None,
        "activeProducers": [] if isinstance(found, int) else _producers(found),
    }


def _producers(host: Host) -> list[Value]:
    return [
        {
            "producerId": producer.producer_id,
            "producerEpoch": producer.epoch,
            "lastSequence": producer.last_sequence,
            "lastTimestamp": producer.timestamp,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnStartOffset": producer.transaction_start,
        }
        for producer in host.partition.log.producers()
    ]
