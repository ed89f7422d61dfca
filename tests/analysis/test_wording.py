"""Words, widths and units that several views share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncps_analysis import wording


@pytest.mark.parametrize(
    ("n", "noun", "words"),
    [
        (0, "SYN", "0 SYNs"),
        (1, "SYN", "1 SYN"),
        (1234, "SYN", "1,234 SYNs"),
        (2, "address", "2 addresses"),
        (1, "address", "1 address"),
    ],
)
def test_one_is_singular(n: int, noun: str, words: str) -> None:
    assert wording.many(n, noun) == words


@pytest.mark.parametrize(
    ("figure", "grouped", "text"),
    [
        (10_000_000, ",", "10,000,000"),
        (10_000_000, "", "10000000"),
        (750, ",", "750"),
        (0.5, ",", "0.5"),
        (1 / 3600, ",", "0.000278"),
        (33.3333, ",", "33.333"),
        (0, ",", "0"),
    ],
)
def test_a_figure_has_no_exponent(figure: float, grouped: str, text: str) -> None:
    assert wording.plain(figure, grouped) == text


@given(st.text(alphabet=st.sampled_from("ab-\n\t /"), max_size=400))
def test_wrapped_lines_keep_every_word_and_the_width(text: str) -> None:
    lines = wording.wrap("Label", text)
    assert " ".join(" ".join(line[wording.LABEL :] for line in lines).split()) == " ".join(text.split())
    longest = max(map(len, text.split()), default=0)
    assert all(len(line) <= max(wording.WIDTH, wording.LABEL + longest) for line in lines)


def test_unknown_is_a_sign_and_zero_a_value() -> None:
    assert (wording.count(None), wording.count(0), wording.count(1234)) == ("-", "0", "1,234")
    assert (wording.time_cell(None, "p50", False), wording.time_cell(0, "p50", False)) == ("-", "0  ")
    assert wording.time_cell(1500, "p50", True) == "1.500"
    assert wording.time_cell(1500.25, "mean", False) == "1,500.2"


def test_an_end_is_written_as_addresses_are() -> None:
    assert (wording.end("10.0.0.5", 80), wording.end("::1", 80)) == ("10.0.0.5:80", "[::1]:80")
