"""Which methods of a LogManager share threads: what waits for a disk holds up no look-up."""

import inspect
from collections import defaultdict

from raylog.actors.node.log_manager import GROUPS, LogManagerImpl

METHODS = {
    "control": {"start", "shutdown", "obey", "failed"},
    "disks": {"log_dirs", "look_again", "record_cleaner_offset", "record_log_start"},
    "metadata": {
        "metadata_push",
        "metadata_status",
        "metadata_promise",
        "metadata_read",
        "metadata_release",
    },
    "lookups": {
        "order_of",
        "confirmed",
        "recovering",
        "recoveries",
        "cleaner_offsets",
        "endpoint_of",
        "said",
        "show",
        "verifier_of",
    },
}


def test_what_waits_for_a_disk_shares_no_threads_with_look_ups() -> None:
    grouped: dict[str, set[str]] = defaultdict(set)
    for name, method in inspect.getmembers(LogManagerImpl, inspect.isfunction):
        if not name.startswith("_"):
            grouped[method.__ray_concurrency_group__].add(name)  # type: ignore[attr-defined]
    assert grouped == METHODS
    assert GROUPS.keys() == METHODS.keys()
