"""What has failed is tried again later each time."""

from raylog.cluster.controller.backoff import Backoff


def test_it_is_tried_after_twice_as_long_each_time_and_at_least_once_a_minute() -> None:
    now_s = 100.0
    backoff = Backoff(lambda: now_s)
    waited = []
    for _ in range(8):
        backoff.failed("t-0")
        failed_s = now_s
        while not backoff.is_due("t-0"):
            now_s += 0.5
        waited.append(now_s - failed_s)
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60]


def test_what_went_well_begins_afresh_and_nothing_holds_up_another() -> None:
    backoff = Backoff(lambda: 0.0)
    backoff.failed("t-0")
    assert (backoff.is_due("t-0"), backoff.is_due("t-1")) == (False, True)
    backoff.reset("t-0")
    assert backoff.is_due("t-0")


def test_those_that_are_gone_are_forgotten() -> None:
    backoff = Backoff(lambda: 0.0)
    for node in ("node-1", "node-2"):
        backoff.failed(node)
    backoff.keep({"node-2"})
    assert (backoff.is_due("node-1"), backoff.is_due("node-2")) == (True, False)
