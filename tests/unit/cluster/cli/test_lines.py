"""Records as lines and lines as records: what is printed as JSON comes back as it was."""

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from raylog.cluster.cli.lines import Row, from_json, from_text, runs, template, to_json, unescaped
from raylog.storage.errors import InvalidRecord
from raylog.storage.limits import MAX_LONG
from raylog.storage.records.record import ConsumerRecord, Header

contents = (
    st.none()
    | st.binary(max_size=20)
    | st.text("aü\n\r\v\x1c\x85\u2028\u2029", max_size=8).map(lambda t: t.encode())
)


def record(
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers: tuple[Header, ...] = (),
    timestamp: int = 5,
) -> ConsumerRecord:
    return ConsumerRecord("t", 1, 42, timestamp, 0, key, value, headers)


@given(
    value=contents,
    key=contents,
    headers=st.lists(st.builds(Header, st.sampled_from(["a", "a", "ü", ""]), contents)),
    timestamp=st.integers(0, MAX_LONG),
)
def test_a_record_that_is_printed_as_json_comes_back(
    value: bytes | None, key: bytes | None, headers: list[Header], timestamp: int
) -> None:
    line = to_json(record(value, key, tuple(headers), timestamp))
    assert len(line.decode().splitlines()) == 1
    assert from_json(line) == Row(value, key, tuple(headers), timestamp, partition=1)


def test_a_line_may_say_no_more_than_a_value() -> None:
    assert from_json(b'{"value": "x"}') == Row(b"x")
    assert from_json(b'{"value": null, "timestamp": -1}') == Row(None), "-1 is Kafka's none"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"x", "it is not JSON: Expecting value, column 1"),
        (b'{"value": "x"', "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[1]", "it is no JSON object"),
        (b'{"vlaue": "x"}', "field 'vlaue' is unknown"),
        (b'{"key": "x"}', 'it has no "value"'),
        (b'{"value": 5}', "value is neither a string nor null"),
        (b'{"value": {"a": 1}}', "value is neither a string nor null"),
        (b'{"value": {"base64": "x"}}', "value: "),
        (b'{"value": {"base64": 5}}', "value: "),
        (b'{"value": "\\ud800"}', "value: "),
        (b'{"value": "", "key": []}', "key is neither"),
        (b'{"value": "", "headers": "ab"}', "headers are not a list of pairs"),
        (b'{"value": "", "headers": {"ab": "x"}}', "headers are not a list of pairs"),
        (b'{"value": "", "headers": [["a"]]}', "headers are not a list of pairs"),
        (b'{"value": "", "headers": [[1, "a"]]}', "headers are not a list of pairs"),
        (b'{"value": "", "headers": [["a", 1]]}', "header 'a' is neither"),
        (b'{"value": "", "timestamp": "now"}', "timestamp 'now' is not an integer"),
        (b'{"value": "", "timestamp": -2}', "timestamp -2 is not"),
        (b'{"value": "", "partition": true}', "partition True is not"),
        (b'{"value": "", "partition": -1}', "partition -1 is not"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: bytes, why: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        from_json(line)
    assert str(refused.value).startswith(why)


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b"a:b:c", Row(b"b:c", b"a")),
        (b"abc", Row(b"abc")),
        (b":", Row(b"", b"")),
        (b"NULL:NULL", Row(None, None)),
        (b"NULL", Row(None)),
        (b"a:NULL", Row(None, b"a")),
    ],
)
def test_a_text_line_is_a_value_or_a_key_and_a_value(line: bytes, row: Row) -> None:
    assert from_text(line, key=None, separator=b":", null=b"NULL") == row


def test_empty_ones_are_null_where_null_is_the_empty_text() -> None:
    assert from_text(b"a:", key=None, separator=b":", null=b"") == Row(None, b"a")
    assert from_text(b":", key=None, separator=b":", null=None) == Row(b"", b"")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%v\\n", b"v\n"),
        ("%t %p %o %T %s", b"t 1 42 5 v"),
        ("[%k] %K %V %S", b"[NULL] -1 1 1"),
        ("%h|", b"a=x,b=NULL|"),
        ("100%% \\x25v \\\\ \\t\\0", b"100% %v \\ \t\0"),
        ("ü%v", "üv".encode()),
    ],
)
def test_a_template_stands_for_a_records_fields(text: str, printed: bytes) -> None:
    headers = (Header("a", b"x"), Header("b", None))
    assert template(text, b"NULL")(record(headers=headers)) == printed


@pytest.mark.parametrize("text", ["%q", "%", "%v\\q", "%v\\", "%v\\x2"])
def test_a_template_that_means_nothing_is_wrong_use(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="means nothing"):
        template(text, b"")


def test_an_argument_is_the_bytes_that_the_shell_gave() -> None:
    assert unescaped("--x", b"\xff\\t".decode(errors="surrogateescape")) == b"\xff\t"


def test_lines_are_named_in_runs() -> None:
    assert runs([3]) == "line 3"
    assert runs([3, 4, 5, 9, 11, 12]) == "lines 3-5, 9, 11-12"
