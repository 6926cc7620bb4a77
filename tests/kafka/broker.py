"""One real Kafka: broker and controller in one JVM, on 127.0.0.1, in a folder of its own.

``start`` returns when a client gets an answer; ``stop`` ends the JVM in order (SIGTERM, as
kafka-server-stop does), ``kill`` by SIGKILL. Its log dir is :attr:`KafkaBroker.log_dir`: while it
is down, the folders in it may be written by others, which is what these tests are about. All that
it says goes to ``server.log``.
"""

import re
import socket
import subprocess
from pathlib import Path

from confluent_kafka import KafkaException

from raylog.storage.files import RealFileSystem
from raylog.storage.state.properties import MetaProperties, read_meta
from raylog.storage.testing.waiting import wait_for
from tests.kafka.clients import admin, bounds
from tests.kafka.distribution import Kafka

NODE_ID = 1
HEAP = "-Xmx512m"
START_TIMEOUT_S = 100
STOP_TIMEOUT_S = 60
CLUSTER_ID = "raylogOracleAAAAAAAAAA"

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": NODE_ID,
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": 1,
    "num.io.threads": 2,
    "num.replica.fetchers": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    # The cleaner's smallest table, and a look at the logs several times a second.
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.cleaner.backoff.ms": 200,
    "log.retention.ms": -1,
    "log.index.size.max.bytes": 1 << 16,  # reserved for each active segment, and copied with it
    "log.initial.task.delay.ms": 500,
}


class KafkaBroker:
    """A node that can be started again and again on its folder."""

    def __init__(self, kafka: Kafka, folder: Path, **settings: object) -> None:
        """``settings``: of the node, by Kafka's names."""
        self._said_before = 0
        self.kafka, self.folder, self.log_dir = kafka, folder, folder / "logs"
        self.said = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = folder / "server.properties"
        self._port, controller = free_ports(2)
        self.address = f"127.0.0.1:{self._port}"
        properties = SETTINGS | {
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller}",
            "log.dirs": self.log_dir,
            **settings,
        }
        self._properties.write_text(
            "".join(f"{key}={value}\n" for key, value in properties.items())
        )
        kafka.run(
            "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties)
        )

    @property
    def meta(self) -> MetaProperties:
        """Whose log dir it is, by Kafka's own meta.properties."""
        meta = read_meta(RealFileSystem(), str(self.log_dir))
        assert meta is not None
        return meta

    def start(self) -> None:
        """Start the JVM; returns when the broker answers a client."""
        assert self._process is None
        command = self.kafka.command(
            "kafka.Kafka",
            str(self._properties),
            heap=HEAP,
            log4j2_level="INFO",
            java_io_tmpdir=str(self.folder),
        )
        with self.said.open("ab") as said:
            self._said_before = said.tell()
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=said, stderr=said)
        wait_for(
            self._answers, START_TIMEOUT_S, f"Kafka does not answer: see {self.said}", poll_s=0.1
        )

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Kafka ended: {self.said.read_text()[-2000:]}"
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                pass
            topics = admin(self.address).list_topics(timeout=5).topics
            bounds(self.address, topics)  # every partition has its leader, and the leader knows it
            return True
        except (OSError, KafkaException):
            return False

    def stop(self) -> None:
        """End the JVM in order, so that it leaves ``.kafka_cleanshutdown``."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(STOP_TIMEOUT_S)
        self._process = None
        assert (self.log_dir / ".kafka_cleanshutdown").exists()

    def kill(self) -> None:
        """End the JVM by SIGKILL; fine if it is down."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def complaints(self) -> list[str]:
        """The warnings and errors that it has logged since the last start."""
        lines = self.said.read_text(errors="replace")[self._said_before :].splitlines()
        return [line for line in lines if re.search(r" (WARN|ERROR|FATAL) ", line)]


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
