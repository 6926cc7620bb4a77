"""Configuration files: what is taken, and what is refused with its file and line."""

import pickle
from pathlib import Path

import pytest

import raylog
from raylog.actors.node.broker_config import BrokerConfig, broker_keys
from raylog.cluster.cli.config_doc import page
from raylog.cluster.config_file import InvalidConfigFile, read_config_file
from raylog.cluster.kafka_properties import ONLY, UNUSED, why_unused
from tests.harness.paths import ROOT


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name
)
def test_the_files_that_we_ship_are_valid(path: Path) -> None:
    assert BrokerConfig.parse(read_config_file(path)).log_dirs


def test_the_page_in_docs_is_the_one_that_the_tables_give() -> None:
    assert (ROOT / "docs" / "CONFIG.md").read_text() == page()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("log.dirs: [/a\n", "line 2"),
        ("log.dirs: /a\nlog.dirs: /b\n", "line 2.*'log.dirs' appears twice"),
        ("- log.dirs\n", "map of keys"),
        ("1: 2\n", "map of keys"),
        ("\x00", "not allowed"),
        ("a: b: c\n", "line 1, column 5: mapping values are not allowed"),
        ("? [1]\n: 2\n", "line 1.*unhashable"),
        ("log.dirs: /a\n---\nlog.dirs: /b\n", "line 2.*another document"),
        (
            "# our broker\nlog.dirs: /a\nlog.segment.byte: 1\n",
            "line 3: .*unknown key.*log.segment.bytes",
        ),
        ("log.dirs: /a\nsegment.bytes: 1\n", "line 2: .*a topic key"),
        (
            "log.dirs: /a\nnum.partitions: many\n",
            "line 2: config num.partitions='many': must be an integer",
        ),
        ("log.dirs: {a: b}\n", "line 1: .*a list of folders"),
        ("<<: {num.partitions: 0}\nlog.dirs: /a\n", "line 1.*merge"),
        ("log.retention.hours: x\n", "line 1: config log.retention.hours='x'"),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(content)
    with pytest.raises(InvalidConfigFile, match=says) as refused:
        read_config_file(path)
    assert str(refused.value).startswith(f"config file {path}: ")
    assert len(str(refused.value).splitlines()) == 1


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_bytes(b"log.dirs: \xff\xfe\n")
    with pytest.raises(InvalidConfigFile, match="codec can't decode"):
        read_config_file(path)


def test_start_takes_a_path_and_says_what_is_wrong_before_it_starts_anything(
    tmp_path: Path,
) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("num.partitions: 0\n")
    for given in (path, str(path)):
        with pytest.raises(InvalidConfigFile, match=r"num\.partitions=0"):
            raylog.start(config=given)


def test_the_error_survives_a_pickle(tmp_path: Path) -> None:
    error = InvalidConfigFile("/a", "why")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "config file /a: why"


def test_a_missing_file_is_named_and_an_empty_one_is_no_settings(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigFile, match="No such file"):
        read_config_file(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert read_config_file(tmp_path / "empty.yaml") == {}


KAFKAS = """\
# as Kafka ships it, in essence
process.roles=broker,controller
node.id=1
num.network.threads = 3
socket.send.buffer.bytes: 102400

log.dirs=/data/a,\\
         /data/b
num.partitions=3
listeners=PLAINTEXT://localhost:19500
offsets.topic.replication.factor=1
log.retention.hours=168
default.replication.factor=1
"""


def properties(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(content)
    return path


def test_kafkas_own_file_is_read_and_names_the_keys_without_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = properties(tmp_path, KAFKAS)
    config = BrokerConfig.parse(read_config_file(path))
    assert config.log_dirs == ("/data/a", "/data/b")
    assert (config.num_partitions, config.first_port) == (3, 19500)
    assert config.topic_defaults.retention_ms == 168 * 3_600_000
    assert [
        line.removeprefix(f"config file {path}: without use here, since ")
        for line in caplog.messages
    ] == [
        "raylog's Controller is a Ray actor, and numbers its brokers itself: "
        "process.roles, node.id",
        "each connection has a thread, up to max.connections: num.network.threads, "
        "socket.send.buffer.bytes",
        "each partition has one copy: offsets.topic.replication.factor, default.replication.factor",
    ]


def test_the_listeners_of_kafkas_controllers_are_none_of_raylogs(tmp_path: Path) -> None:
    """Kafka's own file for one machine has one, at the next port."""
    content = """
listeners=PLAINTEXT://localhost:9092, Controller://localhost:9093
controller.listener.names=OTHER, CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
"""
    config = BrokerConfig.parse(read_config_file(properties(tmp_path, content)))
    assert config.listeners == "PLAINTEXT://localhost:9092"
    alone = "listeners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
    config = BrokerConfig.parse(read_config_file(properties(tmp_path, alone)))
    assert not config.listens


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("log.dirs=/a\n\nlog.dirs=/b", "line 3: key 'log.dirs' appears twice, first in line 1"),
        ("#\nnum.partitions=many", "line 2: config num.partitions='many': must be an integer"),
        ("a=\\\n b\nlog.segment.byte=1", "line 1: .*unknown key"),
        ("x=1\\\n2\nlog.segment.byte=1", "line 1: .*unknown key"),
        ("log.dirs=/a\\\n,/b\nlog.segment.byte=1", "line 3: .*log.segment.bytes"),
        ("log.dirs=\\u00zz", "Invalid"),
        ("segment.bytes=1", "line 1: .*a topic key"),
        ("min.insync.replicas=2", "line 1: min.insync.replicas=2 would not be obeyed, since each "
         "partition has one copy; take it out"),
        ("default.replication.factor=3", "would not be obeyed"),
        ("authorizer.class.name=x.Y", "would not be obeyed"),
        ("remote.log.storage.system.enable=true", "there is no tiered storage"),
        ("config.providers=file", "takes no classes of Java"),
    ],
)  # fmt: skip
def test_a_file_of_kafka_that_cannot_be_obeyed_is_refused(
    tmp_path: Path, content: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = properties(tmp_path, content)
    with pytest.raises(InvalidConfigFile, match=says) as refused:
        read_config_file(path)
    assert len(str(refused.value).splitlines()) == 1
    assert not caplog.messages


def test_no_key_that_is_used_is_called_without_use() -> None:
    """Patterns are for the others: what a broker takes comes first all the same."""
    assert not broker_keys() & UNUSED.keys()
    assert set(ONLY) <= {key for key in ONLY if why_unused(key)}
