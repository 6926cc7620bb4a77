"""What is said of several topics: each error says of which it is."""

import pytest

from raylog.cluster.cli.topics import Told
from raylog.storage.errors import RaylogError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("topic 'seg' is there", "error: topic 'seg' is there"),
        ("seg-0 cannot be reached", "error: seg-0 cannot be reached"),
        ("segment.bytes=1 is too small", "error: seg: segment.bytes=1 is too small"),
        ("max-seg is wrong", "error: seg: max-seg is wrong"),
        ("seg-ment is wrong", "error: seg: seg-ment is wrong"),
    ],
)
def test_an_error_says_of_which_topic_it_is(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Told().error("seg", RaylogError(words))
    assert capsys.readouterr().err.strip() == said
