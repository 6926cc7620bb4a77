"""A worker process: ``python -m tests.soak.worker FOLDER NUMBER ROLE``; see the folder's
``run.json``."""

import json
import sys
import traceback
from pathlib import Path

import ray

import raylog
from tests.soak import grouping, kafka_consuming, kafka_producing, transacting
from tests.soak.changing import change
from tests.soak.clients import Worker
from tests.soak.consuming import consume
from tests.soak.plan import Stable
from tests.soak.producing import produce


def main() -> int:
    folder, number, role = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    run = json.loads((folder / "run.json").read_text())
    ray.init(run["address"], log_to_driver=False, logging_level="ERROR")
    worker = Worker(raylog.connect(namespace=run["namespace"]), folder, number, run["seed"])
    topics = [Stable(*topic) for topic in run["topics"]]
    try:
        if role == "produce":
            produce(worker, topics, run["records_a_second"])
        elif role == "consume":
            consume(worker, topics)
        elif role == "group":
            grouping.consume(worker, topics)
        elif role == "transact":
            transacting.transact(worker)
        elif role == "kafka-produce":
            kafka_producing.produce(worker, topics, run["records_a_second"])
        elif role == "kafka-consume":
            kafka_consuming.consume(worker, topics)
        else:
            change(worker, topics)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
