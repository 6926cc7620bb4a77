"""Options of a write: Spark's names, the producer's settings, and every mistake refused by name."""

import pytest

from raylog.cluster.client.producer.config import ProducerConfig
from raylog.cluster.spark.errors import InvalidSparkOption
from raylog.cluster.spark.options import NAMES as READ_NAMES
from raylog.cluster.spark.sink_options import NAMES, SinkOptions, parse_sink


def test_without_options_the_rows_name_their_topics() -> None:
    assert parse_sink({}) == SinkOptions()


def test_keys_are_taken_in_any_case_since_spark_lowers_them() -> None:
    given = {"TOPIC": " t ", "includeheaders": "TRUE", "Address": "a:1", "namespace": "n"}
    assert parse_sink(given) == SinkOptions(topic="t", address="a:1", namespace="n")


def test_settings_of_the_producer_have_kafkas_prefix_and_get_the_producers_types() -> None:
    given = {
        "kafka.linger.ms": "20",
        "kafka.compression.type": "zstd",
        "kafka.compression.zstd.level": "-3",
        "kafka.enable.idempotence": "false",
        "KAFKA.ACKS": "1",
    }
    config = ProducerConfig.of(dict(parse_sink(given).producer))
    assert config.linger_ms == 20
    assert (config.compression_type, config.compression_zstd_level) == ("zstd", -3)
    assert config.enable_idempotence is False
    assert config.acks == "1"


@pytest.mark.parametrize(
    ("given", "option", "advice"),
    [
        ({"topik": "t"}, "topik", "did you mean topic?"),
        ({"topic": " "}, "topic", "name a topic, or remove the option"),
        ({"path": "t"}, "path", "name the topic with option topic"),
        ({"subscribe": "t"}, "subscribe", "only a read has it"),
        ({"maxoffsetspertrigger": "1"}, "maxoffsetspertrigger", "only a read has it"),
        ({"linger.ms": "1"}, "linger.ms", "did you mean kafka.linger.ms?"),
        ({"xyz": "1"}, "xyz", "unknown option; a write has topic, includeHeaders"),
        ({"includeHeaders": "yes"}, "includeHeaders", "use true or false"),
        ({"kafka.lingr.ms": "1"}, "kafka.lingr.ms", "did you mean kafka.linger.ms?"),
        ({"kafka.bootstrap.servers": "h:1"}, "kafka.bootstrap.servers", "no Kafka client"),
        ({"kafka.linger.ms": "soon"}, "kafka.linger.ms", "give an integer"),
        ({"kafka.linger.ms": "-1"}, "kafka.linger.ms", "must be an integer of 0 or more"),
        ({"kafka.enable.idempotence": "1"}, "kafka.enable.idempotence", "use true or false"),
        ({"kafka.compression.type": "zip"}, "kafka.compression.type", "zip"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer", "bytes already"),
        ({"kafka.partitioner": "round_robin"}, "kafka.partitioner", "add a column partition"),
    ],
)
def test_a_mistake_is_refused_with_what_to_do(
    given: dict[str, str], option: str, advice: str
) -> None:
    with pytest.raises(InvalidSparkOption) as refused:
        parse_sink(given)
    assert refused.value.option == option
    assert advice in str(refused.value)


def test_every_option_of_a_read_alone_is_refused_as_that() -> None:
    for name in set(READ_NAMES) - set(NAMES):
        with pytest.raises(InvalidSparkOption, match="only a read has it"):
            parse_sink({name: "1"})


@pytest.mark.parametrize("name", ProducerConfig.__dataclass_fields__)
def test_every_setting_of_the_producer_can_be_given_or_says_why_not(name: str) -> None:
    values = {"acks": "all", "compression_type": "lz4", "client_id": "x"}
    values["enable_idempotence"] = "true"
    given = {f"kafka.{name.replace('_', '.')}": values.get(name, "7")}
    not_here = ("key_serializer", "value_serializer", "partitioner", "transactional_id")
    if name in (*not_here, "transaction_timeout_ms"):
        with pytest.raises(InvalidSparkOption, match="not supported"):
            parse_sink(given)
        return
    assert parse_sink(given).producer


def test_what_spark_takes_from_a_streams_options_is_left_to_it() -> None:
    given = {"checkpointlocation": "/c", "queryname": "q", "topic": "t"}
    assert parse_sink(given, "stream") == SinkOptions(topic="t")
    with pytest.raises(InvalidSparkOption, match="unknown option"):
        parse_sink(given, "batch")
