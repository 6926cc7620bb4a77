"""What users say about the topics to read."""

import re
from collections.abc import Iterable

from raylog.actors.errors import InvalidRequest

Topics = str | re.Pattern[str] | Iterable[str]


def names_or_pattern(topics: Topics) -> tuple[list[str], re.Pattern[str] | None]:
    """A name, several, or a pattern: a compiled one, or a string that begins with ^."""
    if isinstance(topics, re.Pattern):
        return [], topics
    if isinstance(topics, str):
        if not topics.startswith("^"):
            return [topics], None
        try:
            return [], re.compile(topics)
        except re.error as error:
            raise InvalidRequest("topics", topics, f"is no regular expression: {error}") from None
    names = list(topics)
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequest("topics", topics, "must be names of topics, or a pattern")
    if any(name.startswith("^") for name in names):
        raise InvalidRequest("topics", topics, "has a pattern among names; a pattern stands alone")
    return list(dict.fromkeys(names)), None
