"""Places in a topic as users write them."""

import pytest
import typer

from raylog.cluster.cli.places import Offset, Place, place_of, time_of

NOW = 1_767_312_000_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("beginning", "earliest"),
        ("latest", "latest"),
        ("end", "latest"),
        ("0", Offset(0)),
        ("9223372036854775807", Offset(2**63 - 1)),
        ("@1767312000000", NOW),
        ("-1h", NOW - HOUR),
        ("-90m", NOW - 90 * 60_000),
        ("-90min", NOW - 90 * 60_000),
        ("-2d", NOW - 48 * HOUR),
        ("-1w", NOW - 168 * HOUR),
        ("-5s", NOW - 5000),
        ("-5ms", NOW - 5),
        ("-99999999w", 0),
        ("2026-01-02", NOW),
        ("2026-01-02T00:00", NOW),
        ("2026-01-02T00:00:00.5Z", NOW + 500),
        ("2026-01-02T01:00+01:00", NOW),
    ],
)
def test_a_place_is_a_word_an_offset_or_a_time(text: str, place: Place) -> None:
    assert place_of("--from", text, lambda: NOW) == place


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "-h", "-1y", "@", "@-1", "1e3", "9223372036854775808", "1969-01-01", "٣"],
)
def test_what_is_no_place_is_wrong_use(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no place in a topic"):
        place_of("--from", text)


def test_the_last_records_have_their_own_option() -> None:
    with pytest.raises(typer.BadParameter, match="--last 5"):
        place_of("--from", "-5")


def test_an_offset_is_no_time() -> None:
    assert time_of("5") is None


def test_a_trim_is_not_advised_to_count_from_the_end() -> None:
    with pytest.raises(typer.BadParameter, match="an offset is 0 or more; a time ago has a unit"):
        place_of("--before", "-5")
