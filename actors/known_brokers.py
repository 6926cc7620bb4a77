"""Which brokers run on this machine: a small file of each, written by its LogManagers.

Whoever joins a Ray cluster to find a broker takes a second for it. The command line looks here
first, and then asks the LogManager by its Unix socket. The name of that socket leads to this very
broker, or to nobody. A file outlives a broker that was killed: of several, one counts only while
somebody may listen at the address of its Ray cluster.

The files are in a folder that only their user can read, where every process of his finds it:
``/tmp/raylog-UID``. Each is JSON, with the fields of ``KnownBroker``. Anybody may have made that
folder first; then it is not used.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from stat import S_ISDIR
from typing import Any, Final, NamedTuple

from raylog.storage.permissions import DIR_MODE, is_private, open_private

_PLACE: Final = "/tmp"  # whatever TMPDIR and XDG_RUNTIME_DIR of a process are
_SUFFIX: Final = ".json"
_NAME_CHARS: Final = 16


class KnownBroker(NamedTuple):
    """A broker of this machine. ``broker``: as of ``broker_id``. ``node``: its node's key here."""

    namespace: str
    ray_address: str
    broker: str
    node: str


class BrokerFiles:
    """See the module's head."""

    def __init__(self, folder: str = "") -> None:
        """``folder``: for tests, another one."""
        self._folder = folder or os.path.join(_PLACE, f"raylog-{os.geteuid()}")

    def write(self, known: KnownBroker) -> None:
        """Say that a broker runs here. Raises OSError; also where the folder is not private."""
        with suppress(FileExistsError):
            os.mkdir(self._folder, DIR_MODE)
        if not self._is_own():
            raise PermissionError(f"{self._folder} is not a folder of this user alone")
        path = self._path(known)
        new = f"{path}.{os.getpid()}"
        try:
            with open(new, "w", opener=open_private) as file:
                json.dump(known._asdict(), file)
            os.replace(new, path)
        except OSError:
            with suppress(OSError):
                os.unlink(new)
            raise

    def remove(self, known: KnownBroker) -> None:
        """The broker has ended on this node: forget it, unless another node here has written."""
        if self._is_own() and self._read(self._path(known)) == known:
            with suppress(OSError):
                os.unlink(self._path(known))

    def find(self, namespace: str, ray_address: str | None = None) -> list[KnownBroker]:
        """The brokers of a namespace; only that of a Ray cluster, where one is given."""
        if not self._is_own():
            return []
        paths = [os.path.join(self._folder, name) for name in sorted(os.listdir(self._folder))]
        found = [self._read(path) for path in paths if path.endswith(_SUFFIX)]
        return [
            known
            for known in found
            if known is not None
            and known.namespace == namespace
            and ray_address in (None, known.ray_address)
        ]

    def _is_own(self) -> bool:
        """Whether it is there, and nobody else can have put anything into it."""
        try:
            status = os.lstat(self._folder)
        except OSError:
            return False
        is_folder = S_ISDIR(status.st_mode)  # and no link to one
        return is_folder and status.st_uid == os.geteuid() and is_private(status.st_mode)

    def _path(self, known: KnownBroker) -> str:
        place = f"{known.namespace}\0{known.ray_address}"
        name = hashlib.sha256(place.encode()).hexdigest()[:_NAME_CHARS]
        return os.path.join(self._folder, name + _SUFFIX)

    @staticmethod
    def _read(path: str) -> KnownBroker | None:
        """None where the file is gone, or says nothing that can be understood."""
        try:
            with open(path) as file:
                content: Any = json.load(file)
        except (OSError, ValueError):
            return None
        if not isinstance(content, Mapping):
            return None
        fields = [one for name in KnownBroker._fields if isinstance(one := content.get(name), str)]
        return KnownBroker(*fields) if len(fields) == len(KnownBroker._fields) else None
