"""Frames of Kafka's protocol, as a peer may send them."""

from typing import Any

from raylog.actors.plane import frames as plane
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.records import FETCH, PRODUCE
from raylog.actors.plane.apis.table import APIS
from raylog.actors.plane.hot.fetch import read_fetch
from raylog.actors.plane.hot.produce import read_produce
from raylog.storage.errors import RaylogError
from tests.fuzz.kernels import Disagreement

VERSIONS = [
    (api, version)
    for api in APIS.values()
    for version in range(api.first_version, api.last_version + 1)
]
HOT = {PRODUCE: read_produce, FETCH: read_fetch}


def frames(data: bytes) -> None:
    """The bytes as a frame."""
    try:
        request = plane.parse(data)
    except RaylogError:
        return
    take(request)


def requests(data: bytes) -> None:
    """The bytes as the body of the API and version that the first one says."""
    if data:
        api, version = VERSIONS[data[0] % len(VERSIONS)]
        take(plane.Request(api, version, 0, "", memoryview(data), 1))


def take(request: plane.Request) -> None:
    """What is read is written, and read again as the same. Structs read what the schema reads."""
    value = _answered(plane.read_body, request)
    if request.api in HOT:
        by_structs = _answered(HOT[request.api], request)
        if (value == "an error") != (by_structs == "an error"):
            raise Disagreement(f"{value!r} by the schema is not {by_structs!r}")
    if value != "an error":
        check_written(request.api, request.version, value)


def check_written(api: Api, version: int, value: Any) -> None:
    written = api.request.write(value, version)
    if api.request.read(written, version) != value:
        raise Disagreement(f"{value!r} is written as {written!r}")


def _answered(read: Any, request: plane.Request) -> Any:
    try:
        return read(request)
    except RaylogError:
        return "an error"
