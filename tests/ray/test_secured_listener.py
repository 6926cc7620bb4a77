"""Kafka's clients of other machines: TLS, users, and what becomes of those that prove nothing."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from confluent_kafka import KafkaException

from raylog.actors.errors import InvalidRequest
from raylog.actors.runtime.names import CONTROLLER
from raylog.actors.runtime.nodes import own_host
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for
from tests.harness.faults import kill, pid_of, wait_for_another
from tests.harness.librdkafka import DEADLINE_S, PARTITIONS, Librdkafka, running

PASSWORD = "secret, = and more"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Secured:
    """A broker at its node's own address, and clients of it."""

    def __init__(self, broker: Broker, ca: Path, listener: str = "SASL_SSL") -> None:
        self.broker, self._ca, self._listener = broker, ca, listener

    def client(
        self, mechanism: str = "SCRAM-SHA-256", user: str = "ann", password: str = PASSWORD
    ) -> Librdkafka:
        return Librdkafka(
            self.broker,
            bootstrap_servers=self.broker.bootstrap_servers_of(self._listener),
            security_protocol="SASL_SSL",
            ssl_ca_location=str(self._ca),
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=password,
        )


class Files(NamedTuple):
    """What a listener with TLS needs, and its clients."""

    ca: Path
    key: Path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found, authority = Files(tmp_path / "ca.pem", tmp_path / "key.pem"), trustme.CA()
    authority.cert_pem.write_to_path(str(found.ca))
    signed = authority.issue_cert(own_host())
    signed.private_key_and_cert_chain_pem.write_to_path(str(found.key))
    return found


@pytest.fixture
def secured(local_ray: None, tmp_path: Path, files: Files) -> Iterator[Secured]:
    with running(
        [str(tmp_path / "a")],
        f"kafka-{uuid.uuid4().hex[:8]}",
        listeners="SASL_SSL://:19092",
        ssl_keystore_location=str(files.key),
        sasl_enabled_mechanisms=MECHANISMS,
    ) as broker:
        broker.add_user("ann", PASSWORD)
        broker.create_topic("orders", PARTITIONS)
        yield Secured(broker, files.ca)


def listen(kafka: Librdkafka) -> None:
    wait_for(lambda: len(kafka.leaders("orders")) == PARTITIONS, DEADLINE_S, "all have leaders")


def test_a_user_writes_and_reads_by_each_mechanism(secured: Secured) -> None:
    listen(secured.client())
    assert secured.broker.bootstrap_servers.startswith(f"{own_host()}:")
    for number, mechanism in enumerate(MECHANISMS, start=1):
        kafka = secured.client(mechanism)
        producer = kafka.producer()
        for partition in range(PARTITIONS):
            producer.produce("orders", mechanism.encode() * 1000, partition=partition)
        assert producer.flush(DEADLINE_S) == 0
        assert len(kafka.values("orders", number * PARTITIONS)) == number * PARTITIONS
    own = secured.broker.consumer("orders", from_="earliest", to="latest")
    assert len(list(own)) == len(MECHANISMS) * PARTITIONS, "raylog's own clients need no user"


def test_who_proves_nothing_sees_nothing(secured: Secured) -> None:
    broker = secured.broker
    listen(secured.client())
    plain = {"sasl_mechanism": "PLAIN", "sasl_username": "ann", "sasl_password": PASSWORD}
    for kafka in (
        secured.client(password="wrong"),
        secured.client(user="eve"),
        Librdkafka(broker),
        Librdkafka(broker, security_protocol="SASL_PLAINTEXT", **plain),
        Librdkafka(broker, security_protocol="SSL", enable_ssl_certificate_verification="false"),
    ):
        with pytest.raises(KafkaException):
            kafka.admin().list_topics(timeout=3)


def test_programs_of_the_node_need_no_user_where_others_do(
    local_ray: None, tmp_path: Path, files: Files
) -> None:
    with running(
        [str(tmp_path / "a")],
        f"kafka-{uuid.uuid4().hex[:8]}",
        listeners="PLAINTEXT://127.0.0.1:19092,OUTSIDE://:29092",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_SSL",
        ssl_keystore_location=str(files.key),
    ) as broker:
        broker.add_user("ann", PASSWORD)
        broker.create_topic("orders", PARTITIONS)
        inside, outside = Librdkafka(broker), Secured(broker, files.ca, "outside").client()
        listen(outside)
        producer = outside.producer()
        for partition in range(PARTITIONS):
            producer.produce("orders", b"from far", partition=partition)
        assert producer.flush(DEADLINE_S) == 0
        assert inside.values("orders", PARTITIONS) == [b"from far"] * PARTITIONS
        ports, far_ports = inside.brokers(), outside.brokers()
        assert far_ports == {number: port + 10_000 for number, port in ports.items()}
        stranger = Secured(broker, files.ca, "outside").client(password="wrong")
        with pytest.raises(KafkaException):
            stranger.admin().list_topics(timeout=3)


def test_a_listener_is_added_while_the_broker_serves(local_ray: None, tmp_path: Path) -> None:
    with running([str(tmp_path / "a")], f"kafka-{uuid.uuid4().hex[:8]}") as broker:
        broker.add_user("ann", PASSWORD)
        broker.create_topic("orders", PARTITIONS)
        listen(Librdkafka(broker))
        ports = Librdkafka(broker).brokers()
        both = "PLAINTEXT://127.0.0.1:19092,SASL_PLAINTEXT://127.0.0.1:20092"
        assert not broker.apply_config({"listeners": both}).behind
        far = Librdkafka(
            broker,
            bootstrap_servers=broker.bootstrap_servers_of("SASL_PLAINTEXT"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="ann",
            sasl_password=PASSWORD,
        )
        listen(far)
        listen(Librdkafka(broker))
        assert Librdkafka(broker).brokers() == ports, "they keep theirs"
        assert far.brokers() == {number: port + 1_000 for number, port in ports.items()}


def test_users_come_and_go_while_the_broker_serves_and_survive_its_controller(
    secured: Secured,
) -> None:
    broker = secured.broker
    broker.add_user("bob", "one")
    listen(secured.client(user="bob", password="one"))
    broker.add_user("bob", "two")
    assert [user.name for user in broker.users()] == ["ann", "bob"]
    pid = pid_of(broker, CONTROLLER)
    kill(pid)
    wait_for_another(broker, CONTROLLER, pid)
    assert [user.name for user in broker.users()] == ["ann", "bob"]
    listen(secured.client(user="bob", password="two"))
    with pytest.raises(KafkaException):
        secured.client(user="bob", password="one").admin().list_topics(timeout=3)
    broker.delete_user("bob")
    with pytest.raises(InvalidRequest, match="users are: ann"):
        broker.delete_user("bob")

    def is_out() -> bool:
        """The LogManager hears of it a moment later."""
        try:
            secured.client(user="bob", password="two").admin().list_topics(timeout=3)
        except KafkaException:
            return True
        return False

    wait_for(is_out, DEADLINE_S, "bob is let in no more")
