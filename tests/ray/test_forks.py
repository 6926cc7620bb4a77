"""A process that is forked off from one with a connection to Ray: Ray does not work there."""

import os

from raylog.cluster.broker import Broker
from raylog.errors import ForkedProcess


def test_a_forked_process_hears_by_name_that_rays_connection_is_its_parents(
    broker: Broker, topic: str
) -> None:
    connection = broker.connection()
    connection.metadata(topic, timeout_s=60).result()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for call in (
            broker.list_topics,
            lambda: connection.metadata(topic, timeout_s=60).result(60),
            broker.producer,
            lambda: broker.consumer(topic),
        ):
            try:
                said.append(repr(call()))
            except ForkedProcess as error:
                said.append(error.what)
            except BaseException as error:
                said.append(repr(error))
        os.write(writer, ", ".join(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == ", ".join(["connection to Ray"] * 4)
    os.waitpid(child, 0)
    assert topic in broker.list_topics()
