"""How a listener tells a plain stream from an end of this program."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncps_raw.link import preamble
from ncps_raw.link.preamble import CONTROL, DATA, LENGTH, MAGIC, Mark

TOKEN = bytes(range(16))
WISH = {"sends": True, "bidirectional": False, "streams": 2, "size": None, "duration_ns": 5, "warmup_ns": 0}


def test_a_mark_is_known_once_it_is_whole() -> None:
    mark = preamble.mark(DATA, TOKEN)
    assert len(mark) == LENGTH
    assert [preamble.recognise(mark[:n]) for n in range(LENGTH)] == [None] * LENGTH
    assert preamble.recognise(mark) == preamble.recognise(mark + b"data") == Mark(DATA, TOKEN)


@given(st.binary(min_size=1, max_size=80))
def test_other_bytes_are_a_plain_stream_at_the_first_that_differs(data: bytes) -> None:
    if not MAGIC.startswith(data[: len(MAGIC)]):
        assert preamble.recognise(data) is False


def test_a_kind_nobody_knows_is_a_plain_stream() -> None:
    assert preamble.recognise(MAGIC + b"?" + TOKEN) is False
    with pytest.raises(ValueError):
        preamble.mark(b"?", TOKEN)
    with pytest.raises(ValueError):
        preamble.mark(CONTROL, b"short")


def test_messages_are_lines() -> None:
    line = preamble.line({"a": 1, "b": None})
    assert line.count(b"\n") == 1
    assert preamble.read_line(line) == {"a": 1, "b": None}
    for bad in (b"[]\n", b"x\n", b"\xff\n"):
        with pytest.raises(ValueError):
            preamble.read_line(bad)


def test_a_wish_is_checked() -> None:
    assert preamble.wish_of(WISH).streams == 2
    for change in ({"sends": 1}, {"streams": 0}, {"streams": True}, {"size": -1}, {"warmup_ns": None}, {"size": "1"}):
        with pytest.raises(ValueError):
            preamble.wish_of(WISH | change)
