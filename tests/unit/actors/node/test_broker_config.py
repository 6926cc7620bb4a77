"""A broker's keys: defaults, what they set for topics, what they refuse."""

from pathlib import Path
from typing import Any

import pytest

from raylog.actors.listeners import Listener, advertised_host
from raylog.actors.node.broker_config import (
    BROKER_KEYS,
    BROKER_SYNONYMS,
    BrokerConfig,
    node_log_dirs,
)
from raylog.actors.node.config_digests import config_of, values_of
from raylog.storage.config import LogConfig
from raylog.storage.errors import InvalidConfig


def attribute(key: str) -> str:
    return key.replace(".", "_")


def test_a_mistyped_key_is_answered_with_those_like_it() -> None:
    with pytest.raises(InvalidConfig, match=r"unknown key; similar keys are log\.segment\.bytes"):
        BrokerConfig.parse({"log.segment.byte": 1})


def test_a_topics_key_is_answered_with_the_brokers() -> None:
    with pytest.raises(InvalidConfig, match=r"use the broker key log\.segment\.bytes"):
        BrokerConfig.parse({"segment.bytes": 1 << 20})


def test_every_broker_key_has_its_default() -> None:
    config = BrokerConfig.parse({})
    assert {key.name: getattr(config, attribute(key.name)) for key in BROKER_KEYS.values()} == {
        "log.dirs": (),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SSL:SSL,SASL_SSL:SASL_SSL",
        "listeners": "PLAINTEXT://127.0.0.1:19092",
        "sasl.enabled.mechanisms": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "ssl.keystore.location": "",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.location": "",
        "ssl.truststore.type": "PEM",
        "ssl.client.auth": "none",
        "max.connections": 1000,
        "connections.max.idle.ms": 600000,
        "socket.request.max.bytes": 104857600,
        "num.partitions": 1,
        "log.retention.check.interval.ms": 300000,
        "log.flush.offset.checkpoint.interval.ms": 60000,
        "log.flush.start.offset.checkpoint.interval.ms": 60000,
        "num.recovery.threads.per.data.dir": 2,
        "replica.alter.log.dirs.io.max.bytes.per.second": 1.7976931348623157e308,
        "producer.id.expiration.ms": 86400000,
        "producer.id.expiration.check.interval.ms": 600000,
        "group.min.session.timeout.ms": 6000,
        "group.max.session.timeout.ms": 1800000,
        "group.initial.rebalance.delay.ms": 200,
        "group.max.size": 1000,
        "offset.metadata.max.bytes": 4096,
        "offsets.retention.minutes": 10080,
        "offsets.retention.check.interval.ms": 600000,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": 16777216,
        "transaction.max.timeout.ms": 900000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10000,
        "transactional.id.expiration.ms": 604800000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 3600000,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.segment.bytes": 16777216,
        "log.cleaner.enable": True,
        "log.cleaner.threads": 1,
        "log.cleaner.dedupe.buffer.size": 134217728,
        "log.cleaner.io.buffer.size": 524288,
        "log.cleaner.io.buffer.load.factor": 0.9,
        "log.cleaner.io.max.bytes.per.second": 1.7976931348623157e308,
        "log.cleaner.backoff.ms": 15000,
        "metadata.log.max.record.bytes.between.snapshots": 20971520,
    }
    assert config.topic_defaults == LogConfig()


VALUES: dict[str, tuple[Any, Any]] = {
    "message.timestamp.type": ("LogAppendTime", "LogAppendTime"),
    "compression.type": ("zstd", "zstd"),
    "preallocate": ("TRUE", True),
    "check.compressed.batches": ("false", False),
    "cleanup.policy": ("compact", "compact"),
    "min.cleanable.dirty.ratio": ("0.25", 0.25),
    **{f"compression.{codec}.level": ("7", 7) for codec in ("gzip", "lz4", "zstd")},
}


@pytest.mark.parametrize(
    ("topic_key", "broker_key", "factor"),
    [(topic_key, *pair) for topic_key, pairs in BROKER_SYNONYMS.items() for pair in pairs],
)
def test_a_broker_synonym_sets_the_topics_default(
    topic_key: str, broker_key: str, factor: int
) -> None:
    value, expected = VALUES.get(topic_key, (2**21, 2**21 * factor))
    config = BrokerConfig.parse({broker_key: value}).topic_defaults
    assert getattr(config, attribute(topic_key)) == expected


def test_of_several_synonyms_the_finest_wins() -> None:
    given = {"log.retention.hours": 1, "log.retention.ms": 3, "log.retention.minutes": 2}
    assert BrokerConfig.parse(given).topic_defaults.retention_ms == 3
    del given["log.retention.ms"]
    assert BrokerConfig.parse(given).topic_defaults.retention_ms == 120_000


def test_no_limit_has_no_unit() -> None:
    assert BrokerConfig.parse({"log.retention.hours": -1}).topic_defaults.retention_ms == -1
    assert BrokerConfig.parse({"log.retention.minutes": "-1"}).topic_defaults.retention_ms == -1


@pytest.mark.parametrize(
    ("key", "value"), [("log.roll.hours", "soon"), ("log.roll.hours", 0), ("log.roll.ms", 0)]
)
def test_a_bad_synonym_is_refused_by_its_own_name(key: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=rf"config {key}={value!r}: as segment\.ms it must be"):
        BrokerConfig.parse({key: value})


@pytest.mark.parametrize("value", [["/a", "/b"], "/a, /b", ("/a ", " /b")])
def test_log_dirs_are_a_list_however_written(value: Any) -> None:
    assert BrokerConfig.parse({"log.dirs": value}).log_dirs == ("/a", "/b")


@pytest.mark.parametrize("value", ["", [], "a,,b", [1], 7, None, [""], {"a": 1}])
def test_what_is_no_list_of_folders_is_refused(value: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"log\.dirs"):
        BrokerConfig.parse({"log.dirs": value})


def test_log_dir_is_another_name_of_log_dirs_which_applies_where_both_are_set() -> None:
    assert BrokerConfig.parse({"log.dir": "/a,/b"}).log_dirs == ("/a", "/b")
    for given in ({"log.dir": "/a", "log.dirs": "/b"}, {"log.dirs": "/b", "log.dir": "/a"}):
        assert BrokerConfig.parse(given).log_dirs == ("/b",)
    with pytest.raises(InvalidConfig, match=r"config log\.dir=7: must be a list of folders"):
        BrokerConfig.parse({"log.dirs": "/b", "log.dir": 7})


def test_a_node_uses_the_log_dirs_of_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    config = BrokerConfig.parse({"log.dirs": "/a"})
    monkeypatch.delenv("RAYLOG_LOG_DIRS", raising=False)
    assert node_log_dirs(config) == ("/a",)
    monkeypatch.setenv("RAYLOG_LOG_DIRS", "/b, /c")
    assert node_log_dirs(config) == ("/b", "/c")


def test_a_node_refuses_relative_log_dirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's processes run in folders of their own."""
    monkeypatch.setenv("RAYLOG_LOG_DIRS", "/a,data")
    with pytest.raises(InvalidConfig, match="config RAYLOG_LOG_DIRS='data': must be absolute"):
        node_log_dirs(BrokerConfig.parse({}))


def test_the_refusal_of_a_relative_log_dir_names_the_data_that_lie_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier raylog took the path. A new one, as advised, must not begin an empty cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYLOG_LOG_DIRS", "data")
    with pytest.raises(InvalidConfig, match=f"here it means {tmp_path}/data, where no log dir is"):
        node_log_dirs(BrokerConfig.parse({}))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").touch()
    there = f"its data are in {tmp_path}/data: set that path, or move them to the one that you set"
    with pytest.raises(InvalidConfig, match=there):
        node_log_dirs(BrokerConfig.parse({}))


def test_an_unknown_broker_key_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="unknown key"):
        BrokerConfig.parse({"advertised.listeners": "x"})


def test_flags_and_rates_are_taken_as_yaml_and_command_lines_give_them() -> None:
    for given, expected in ((True, True), ("false", False), ("True", True)):
        assert BrokerConfig.parse({"log.cleaner.enable": given}).log_cleaner_enable is expected
    rate = BrokerConfig.parse({"log.cleaner.io.max.bytes.per.second": "1e6"})
    assert rate.log_cleaner_io_max_bytes_per_second == 1e6
    for key, value in (("log.cleaner.enable", 1), ("log.cleaner.io.max.bytes.per.second", 0)):
        with pytest.raises(InvalidConfig, match=key):
            BrokerConfig.parse({key: value})


@pytest.mark.parametrize(
    ("given", "listens", "first_port"),
    [
        ("PLAINTEXT://127.0.0.1:9092", True, 9092),
        (" PLAINTEXT://localhost:32767 ", True, 32_767),
        ("SASL_PLAINTEXT://:20000, PLAINTEXT://127.0.0.1:9092", True, 20_000),
        ("plaintext://127.0.0.1:9092", True, 9092),
        (["PLAINTEXT://127.0.0.1:9092", "SASL_PLAINTEXT://:9192"], True, 9092),
        ("", False, 19_092),
    ],
)
def test_the_ports_begin_where_the_first_listener_says(
    given: Any, listens: bool, first_port: int
) -> None:
    config = BrokerConfig.parse({"listeners": given})
    assert (config.listens, config.first_port) == (listens, first_port)


@pytest.mark.parametrize(
    "given",
    [
        "PLAINTEXT://127.0.0.1:0",
        "PLAINTEXT://127.0.0.1:32768",
        "PLAINTEXT://127.0.0.1:9092,plaintext://127.0.0.1:9093",
        ",".join(f"L{n}://127.0.0.1:{20_000 + 100 * n}" for n in range(10)),
        ["PLAINTEXT://127.0.0.1:9092", 7],
        "PLAINTEXT://127.0.0.1:9092,",
        "OUT SIDE://:9092",
        "SASL_SSL://a b:9092",
        "127.0.0.1:9092",
        9092,
    ],
)
def test_a_listener_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"a list of at most 9 NAME://HOST:PORT, .* or empty"):
        BrokerConfig.parse({"listeners": given})


KEY = {"ssl.keystore.location": "/k.pem"}
AUTHORITIES = {"ssl.truststore.location": "/ca.pem"}
NEEDS_ONE = {"ssl.client.auth": "required"}
WITH_PLAIN = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}


@pytest.mark.parametrize(
    ("listeners", "others", "why"),
    [
        ("PLAINTEXT://:9092", {}, "PLAINTEXT asks nobody who he is"),
        ("PLAINTEXT://0.0.0.0:9092", {}, "use SASL_SSL"),
        ("PLAINTEXT://127.0.0.1.evil:9092", {}, "use SASL_SSL"),
        ("SASL_SSL://:9092", {}, "needs ssl.keystore.location"),
        ("SSL://127.0.0.1:9092", {}, "needs ssl.keystore.location"),
        ("SSL://:9092", KEY, "SSL asks nobody who he is, unless ssl.client.auth=required"),
        (
            "SSL://:9092",
            {**KEY, **AUTHORITIES, "ssl.client.auth": "requested"},
            "unless ssl.client.auth=required",
        ),
        ("SSL://:9092", {**KEY, **NEEDS_ONE}, "needs ssl.truststore.location"),
        ("SASL_PLAINTEXT://:9092", WITH_PLAIN, "PLAIN would send passwords as they are"),
        ("PLAINTEXT://127.0.0.1:9092,SASL_SSL://:9192", {}, "needs ssl.keystore.location"),
        ("OUTSIDE://:9092", {}, "OUTSIDE is no protocol .* listener.security.protocol.map does"),
        (
            "OUTSIDE://:9092",
            {"listener.security.protocol.map": "OUTSIDE:PLAINTEXT"},
            "OUTSIDE: PLAINTEXT asks nobody who he is",
        ),
        (
            "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9191",
            {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT"},
            "keep 100 ports or more between PLAINTEXT and CONTROLLER",
        ),
        (
            "SASL_SSL://10.0.0.1:9092,SASL_PLAINTEXT://0.0.0.0:9192",
            KEY,
            "listeners for other machines have the same HOST",
        ),
    ],
)
def test_nobody_listens_where_strangers_could_come_in(
    listeners: str, others: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidConfig, match=why):
        BrokerConfig.parse({"listeners": listeners, **others})
    for key, value in ({"listeners": listeners} | others).items():
        BrokerConfig.check(key, value)  # each by itself may be right


@pytest.mark.parametrize(
    ("listeners", "others", "host"),
    [
        ("SASL_SSL://:9092", KEY, "10.0.0.7"),
        ("SASL_SSL://0.0.0.0:9092", {**KEY, **WITH_PLAIN}, "0.0.0.0"),
        ("SSL://kafka.local:9092", {**KEY, **AUTHORITIES, **NEEDS_ONE}, "kafka.local"),
        ("SSL://localhost:9092", KEY, "127.0.0.1"),
        ("SASL_PLAINTEXT://:9092", {}, "10.0.0.7"),
        ("SASL_PLAINTEXT://127.0.0.2:9092", WITH_PLAIN, "127.0.0.2"),
        ("PLAINTEXT://[::1]:9092", {}, "::1"),
    ],
)
def test_where_and_how_each_process_listens(
    listeners: str, others: dict[str, Any], host: str
) -> None:
    config = BrokerConfig.parse({"listeners": listeners, "max.connections": 7, **others})
    (listener,) = config.listeners_at("10.0.0.7")
    assert (listener.host, listener.max_connections, config.first_port) == (host, 7, 9092)
    assert listener.protocol == listeners.partition(":")[0]
    assert listener.is_encrypted == ("SSL" in listeners)
    assert listener.asks_for_a_user == ("SASL" in listeners)
    assert config_of(values_of(config)) == config


def test_listeners_have_names_and_ports_at_a_distance() -> None:
    given = {
        "listeners": "inside://127.0.0.1:19092,OUTSIDE://:29092,PLAINTEXT://127.0.0.1:18092",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,outside:sasl_ssl,PLAINTEXT:PLAINTEXT",
        **KEY,
    }
    config = BrokerConfig.parse(given)
    found = config.listeners_at("10.0.0.7")
    assert [(one.name, one.protocol, one.host, one.distance) for one in found] == [
        ("INSIDE", "PLAINTEXT", "127.0.0.1", 0),
        ("OUTSIDE", "SASL_SSL", "10.0.0.7", 10_000),
        ("PLAINTEXT", "PLAINTEXT", "127.0.0.1", -1_000),
    ]
    assert config_of(values_of(config)) == config
    assert config.listeners == given["listeners"].upper(), "as an older raylog reads it"
    assert {one.max_idle_ms for one in found} == {config.connections_max_idle_ms}
    assert advertised_host(found, "10.0.0.7") == "10.0.0.7"
    everywhere = [found[0], found[1]._replace(host="0.0.0.0")]
    assert advertised_host(everywhere, "10.0.0.7") == "10.0.0.7"
    assert [one.address("far", 20_000) for one in found] == [
        ("127.0.0.1", 20_000),
        ("far", 30_000),
        ("127.0.0.1", 19_000),
    ]


def test_protocols_are_names_unless_the_map_says_otherwise() -> None:
    names = "Outside : SASL_PLAINTEXT, plaintext: SASL_PLAINTEXT"
    given = {"listeners": "OUTSIDE://:9092,PLAINTEXT://:9192,SASL_PLAINTEXT://:9292"}
    config = BrokerConfig.parse({**given, "listener.security.protocol.map": names})
    assert {one.protocol for one in config.listeners_at("h")} == {"SASL_PLAINTEXT"}
    assert config.listener_security_protocol_map == (
        "OUTSIDE:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT"
    )


@pytest.mark.parametrize(
    "given", ["", "A", "A:", ":SSL", "A:SSL,B:TLS", 7, "A:B:SSL", "A:SSL,a:SSL", ["A:SSL", 7]]
)
def test_a_map_of_protocols_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(InvalidConfig, match="a list of NAME:PROTOCOL"):
        BrokerConfig.parse({"listener.security.protocol.map": given})


@pytest.mark.parametrize("path", ["k.pem", 7, "/a\0b"])
def test_a_file_of_keys_has_an_absolute_path(path: Any) -> None:
    with pytest.raises(InvalidConfig, match="an absolute path"):
        BrokerConfig.parse({"ssl.keystore.location": path})


def test_a_node_tells_the_address_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(host: str) -> str:
        return advertised_host([Listener(protocol="SASL_SSL", host=host)], "10.0.0.7")

    assert [told(host) for host in ("0.0.0.0", "10.0.0.9")] == ["10.0.0.7", "10.0.0.9"]
    monkeypatch.setenv("RAYLOG_ADVERTISED_HOST", " kafka.example.com ")
    assert [told(host) for host in ("0.0.0.0", "10.0.0.9")] == ["kafka.example.com"] * 2
    assert told("127.0.0.1") == "127.0.0.1", "nobody comes there from elsewhere"
