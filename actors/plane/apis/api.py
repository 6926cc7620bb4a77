"""What one API of Kafka's protocol is: its number, its versions, its request and its answer.

A request and its answer are messages of Kafka's schemas. Here each is a text (``schema.py`` says
how it is written), with the versions that Kafka 4.3 serves: a field without versions is in all of
them. Names, types, tags and defaults are those of Kafka's ``common/message/*.json``, in lower camel
case as Kafka's tools show them. So is what is ignorable, but for the tagged hints of Produce and
Fetch answers (where a leader is, where epochs diverge): here they may be given to every version.

A text becomes a schema when the API is first used: most processes use few of the APIs.

The headers around the two bodies depend on the version alone (``frames.py`` draws them)::

    version              request header    answer header
    not flexible         1                 0
    flexible             2                 1; of ApiVersions always 0

An ApiVersions answer has header 0 for ever, so that a client of a newer Kafka can read it. Source:
``ApiKeys`` and ``ApiMessageType`` of Kafka 4.3; KIP-482, KIP-511.
"""

from functools import cached_property
from typing import Final

from raylog.storage.schemas.scalars import NEVER
from raylog.storage.schemas.schema import Schema, schema

_API_VERSIONS_KEY: Final = 18


class Api:
    """One API, in the versions that are served."""

    def __init__(
        self,
        key: int,
        name: str,
        *,
        first_version: int = 0,
        last_version: int,
        flexible: int = NEVER,
        request: str = "",
        answer: str,
        advertised_from: int | None = None,
        is_hot: bool = False,
    ) -> None:
        self.key = key
        self.name = name
        self.first_version = first_version
        self.last_version = last_version
        self.flexible_version = flexible
        # What an ApiVersions answer says where it is not the first version that is served.
        self.advertised_from = first_version if advertised_from is None else advertised_from
        self.is_hot = is_hot  # read and answered by precompiled structs (``hot/``)
        self._request_text = request
        self._answer_text = answer

    def __repr__(self) -> str:
        return f"<Api {self.name}>"

    def serves(self, version: int) -> bool:
        return self.first_version <= version <= self.last_version

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_version

    def request_header_version(self, version: int) -> int:
        return 2 if self.is_flexible(version) else 1

    def answer_header_version(self, version: int) -> int:
        return int(self.is_flexible(version) and self.key != _API_VERSIONS_KEY)

    @cached_property
    def request(self) -> Schema:
        return self._schema("Request", self._request_text)

    @cached_property
    def answer(self) -> Schema:
        return self._schema("Response", self._answer_text)

    def _schema(self, suffix: str, text: str) -> Schema:
        return schema(
            f"{self.name}{suffix}",
            text,
            last_version=self.last_version,
            flexible=self.flexible_version,
        )
