"""Which methods of a LogActor share threads: what waits for a disk holds up no word and no look."""

import inspect
from collections import defaultdict

from raylog.actors.partition.log_actor import OPTIONS, LogActorImpl

GROUPS = {
    "produce": {"append"},
    "fetch": {"fetch"},
    "poll": {"poll"},
    "says": {"says", "learn", "data_address"},
    "admin": {"offsets", "offset_for_timestamp", "status"},
    "control": {"reconfigure", "flush", "roll", "close"},
    "removal": {"delete_records"},  # it waits 10 s where there is no Controller
    "upkeep": {
        "delete_old_segments",
        "cleaning_facts",
        "cleaning_view",
        "check_unchanged",
        "replace_segments",
    },
}


def test_an_fsync_a_swap_and_a_look_up_share_no_threads() -> None:
    grouped: dict[str, set[str]] = defaultdict(set)
    for name, method in inspect.getmembers(LogActorImpl, inspect.isfunction):
        if not name.startswith("_"):
            grouped[method.__ray_concurrency_group__].add(name)  # type: ignore[attr-defined]
    assert grouped == GROUPS
    assert OPTIONS["concurrency_groups"].keys() == GROUPS.keys()
