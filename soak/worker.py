"""One worker process: ``python -m soak.worker FOLDER NUMBER ROLE``; the rest stands in the folder's ``run.json``."""

import json
import sys
import traceback
from pathlib import Path

import ray

import raylog
from soak.changing import change
from soak.clients import Worker
from soak.consuming import consume
from soak.plan import Stable
from soak.producing import produce


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
        else:
            change(worker, topics)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
