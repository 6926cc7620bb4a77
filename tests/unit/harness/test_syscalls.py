"""A transcript of strace becomes events; rules and losses are read off them."""

from tests.harness.syscalls import (
    Before,
    Between,
    Event,
    Has,
    Never,
    Unsynced,
    broken,
    events,
    left_unsynced,
)

HEAD = [
    '7 mkdir("/r/a", 0777) = 0',
    '7 openat(AT_FDCWD</home>, "/r/a/x", O_RDWR|O_CREAT|O_APPEND, 0644) = 3</r/a/x>',
]
MARKS = ("begins", "returns")


def said(lines: list[str]) -> list[str]:
    return [str(event) for event in events(lines, "/r")]


def transcript(*lines: str) -> list[Event]:
    """Events by their text: ``rename a -> b``."""
    made = []
    for line in lines:
        verb, _, names = line.partition(" ")
        name, _, target = names.partition(" -> ")
        made.append(Event(verb, name, target))
    return made


def test_calls_become_events_with_names_below_the_root() -> None:
    lines = [
        *HEAD,
        '7 writev(3</r/a/x>, [{iov_base=""..., iov_len=61}], 1) = 61',
        "7 ftruncate(3</r/a/x>, 40) = 0",
        "7 fdatasync(3</r/a/x>) = 0",
        "7 fsync(4</r/a>) = 0",
        '7 rename("/r/a/x", "/r/a/y") = 0',
        '7 unlinkat(5</r/a>, "/r/a/y", 0) = 0',
    ]
    assert said(lines)[:2] == ["make_dir a", "create a/x"]
    assert said(lines)[2:7] == [
        "write a/x",
        "cut a/x",
        "sync a/x",
        "sync_dir a",
        "rename a/x -> a/y",
    ]


def test_what_fails_or_lies_elsewhere_is_no_event() -> None:
    lines = [
        '7 unlink("/r/none") = -1 ENOENT (No such file or directory)',
        '7 openat(AT_FDCWD</r>, "/etc/x", O_RDWR|O_CREAT, 0644) = 3</etc/x>',
        '7 write(1<pipe:[12]>, ""..., 4) = 4',
        "7 +++ exited with 0 +++",
    ]
    assert said(lines) == []


def test_a_mark_is_an_event_though_its_file_is_not_there() -> None:
    lines = ['7 unlink("/raylog-marks/flush begins") = -1 ENOENT (No such file or directory)']
    assert said(lines) == ["mark flush begins"]


def test_a_call_that_another_thread_interrupts_is_put_together() -> None:
    lines = [
        *HEAD,
        "7 fdatasync(3</r/a/x> <unfinished ...>",
        '8 write(3</r/a/x>, ""..., 4) = 4',
        "7 <... fdatasync resumed>) = 0",
    ]
    assert said(lines)[2:] == ["write a/x", "sync a/x"]


def test_opening_creates_cuts_or_only_opens() -> None:
    lines = [
        *HEAD,
        '7 openat(AT_FDCWD</home>, "/r/a/x", O_RDWR|O_CREAT, 0644) = 3</r/a/x>',
        '7 openat(AT_FDCWD</home>, "/r/a/x", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 3</r/a/x>',
        '7 openat(AT_FDCWD</home>, "/r/a/x", O_RDONLY) = 3</r/a/x>',
    ]
    assert said(lines)[2:] == ["cut a/x"]


def test_a_file_keeps_its_state_under_a_new_name() -> None:
    state = Unsynced()
    for event in transcript("create a/x", "write a/x", "rename a/x -> a/y", "sync_dir a"):
        state.follow(event)
    assert [str(event) for event in state.changes()] == ["write a/y"]
    state.follow(Event("sync", "a/y"))
    assert state.changes() == []


def test_a_folder_takes_its_files_along() -> None:
    state = Unsynced()
    for event in transcript("write a/x", "create a/x", "rename a -> b", "sync_dir ."):
        state.follow(event)
    assert [str(event) for event in state.changes()] == ["write b/x", "create a/x"]


def test_what_an_operation_leaves_is_told_but_for_what_it_may() -> None:
    made = transcript("mark begins", "create x", "write x", "mark returns", "sync x")
    assert left_unsynced(made, MARKS) == [
        "not on the disk at the return: write x",
        "not on the disk at the return: create x",
    ]
    assert left_unsynced(made, MARKS, ("* x",)) == []


def test_a_rename_of_what_is_not_synced_is_told() -> None:
    made = transcript(
        "mark begins", "write x.tmp", "rename x.tmp -> x", "sync x", "sync_dir .", "mark returns"
    )
    assert left_unsynced(made, MARKS) == ["rename x.tmp -> x: its content is not on the disk"]


def test_before_means_all_before_any() -> None:
    made = transcript("sync x", "rename x -> y", "sync x")
    assert broken([Before("sync x", "rename *")], made) == [
        "rename x -> y comes before sync x",
    ]
    assert broken([Before("sync x", "rename *")], made[:2]) == []
    assert broken([Before("sync z", "rename *")], made) == ["no sync z"]


def test_between_wants_a_barrier_at_the_right_place() -> None:
    rule = [Between("rename *.a -> *.b", "sync_dir .", "rename *.c -> *.d")]
    first, then = "rename x.a -> x.b", "rename x.c -> x.d"
    assert broken(rule, transcript(first, "sync_dir .", then)) == []
    assert broken(rule, transcript("sync_dir .", first, then, "sync_dir .")) == [
        f"no sync_dir . between {first} and {then}"
    ]


def test_has_and_never() -> None:
    made = transcript("sync x")
    assert broken([Has("sync *"), Never("cut *")], made) == []
    assert broken([Has("cut *"), Never("sync *")], made) == ["no cut *", "there is a sync *"]
