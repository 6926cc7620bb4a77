"""Notes at Ray's head, without Ray."""

from collections.abc import Mapping


class FakeNotes:
    """As ``witness.Notes``. ``is_away``: whether Ray's head does not answer."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.is_away = False

    def keep(self, key: str, value: bytes) -> None:
        self._check()
        self.values[key] = value

    def find(self, prefix: str) -> Mapping[str, bytes]:
        self._check()
        return {key: value for key, value in self.values.items() if key.startswith(prefix)}

    def forget(self, key: str) -> None:
        self._check()
        self.values.pop(key, None)

    def _check(self) -> None:
        if self.is_away:
            raise ConnectionError
