"""How many more logs a node can hold: by memory and by threads, of the machine or a container."""

import pytest

from raylog.actors.node.room import LOG_BYTES, LOG_THREADS, measured_room, room

MACHINE = {
    "/proc/meminfo": f"MemTotal: 9 kB\nMemAvailable:   {100 * LOG_BYTES // 1024} kB\n",
    "/proc/loadavg": "0.1 0.2 0.3 2/1000 4711\n",
    "/proc/sys/kernel/threads-max": f"{1000 + 80 * LOG_THREADS}\n",
    "/proc/sys/kernel/pid_max": f"{1000 + 70 * LOG_THREADS}\n",
}


def measured(files: dict[str, str]) -> int:
    return measured_room(files.get)


@pytest.mark.parametrize(
    ("memory", "threads", "logs"),
    [
        (None, None, -1),
        (10 * LOG_BYTES, None, 10),
        (None, 3 * LOG_THREADS, 3),
        (10 * LOG_BYTES, 3 * LOG_THREADS, 3),
        (2 * LOG_BYTES - 1, 3 * LOG_THREADS, 1),
        (-5, 3 * LOG_THREADS, 0),
    ],
)
def test_what_is_scarcest_counts(memory: int | None, threads: int | None, logs: int) -> None:
    assert room(memory_free_bytes=memory, threads_free=threads) == logs


def test_a_machine_without_limits_of_its_own_groups_has_its_own() -> None:
    assert measured(MACHINE) == 70
    assert measured({"/proc/meminfo": MACHINE["/proc/meminfo"]}) in (99, 100)
    assert measured({}) == -1


def test_the_groups_of_a_container_count_with_all_above_them() -> None:
    files = {
        **MACHINE,
        "/proc/self/cgroup": "0::/pods/one\n",
        "/sys/fs/cgroup/pods/one/memory.max": "max\n",
        "/sys/fs/cgroup/pods/one/memory.current": "5\n",
        "/sys/fs/cgroup/pods/memory.max": f"{40 * LOG_BYTES}\n",
        "/sys/fs/cgroup/pods/memory.current": f"{30 * LOG_BYTES}\n",
        "/sys/fs/cgroup/pods/memory.stat": f"anon 7\ninactive_file {10 * LOG_BYTES}\n",
    }
    assert measured(files) == 20
    files["/sys/fs/cgroup/pids.max"] = f"{9 * LOG_THREADS}"
    files["/sys/fs/cgroup/pids.current"] = f"{4 * LOG_THREADS}"
    assert measured(files) == 5


def test_groups_of_the_first_version_count_too() -> None:
    folder = "/sys/fs/cgroup/memory/docker/one"
    files = {
        **MACHINE,
        "/proc/self/cgroup": "9:memory:/docker/one\n8:cpu,pids:/docker/one\n",
        f"{folder}/memory.limit_in_bytes": f"{40 * LOG_BYTES}",
        f"{folder}/memory.usage_in_bytes": f"{30 * LOG_BYTES}",
        f"{folder}/memory.stat": f"inactive_file 1\ntotal_inactive_file {LOG_BYTES}\n",
        "/sys/fs/cgroup/pids/docker/one/pids.max": "max",
        "/sys/fs/cgroup/pids/docker/one/pids.current": "3",
    }
    assert measured(files) == 11


def test_this_machine_has_a_number() -> None:
    assert measured_room() >= -1
