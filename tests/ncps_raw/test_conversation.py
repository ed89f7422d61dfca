"""The mode table: rows mean what the plan offers and what the engines can read."""

import dataclasses
import inspect

import pytest

from ncps_raw import conversation, plan
from ncps_raw.conversation import CLIENT_MODES, SERVER_MODES, Mode

EVERY = [*CLIENT_MODES.values(), *SERVER_MODES.values()]


def test_each_mode_of_a_plan_is_a_row_and_each_row_is_on_offer() -> None:
    assert tuple(CLIENT_MODES) == plan.CLIENT_MODES
    assert tuple(SERVER_MODES) == plan.SERVER_MODES


@pytest.mark.parametrize("table", [CLIENT_MODES, SERVER_MODES])
def test_rows_are_found_by_their_names(table: dict[str, Mode]) -> None:
    assert [mode.name for mode in table.values()] == list(table)


def test_ncps_modes_0_and_1() -> None:
    zero, one = CLIENT_MODES["0"], CLIENT_MODES["1"]
    assert (zero.tx, zero.rx) == (0, 0)
    assert (one.tx, one.rx, one.rx_complete, one.gate) == (1, 1, "any", "window")


def test_the_server_waits_for_its_peer_and_never_ends_by_itself() -> None:
    echo = SERVER_MODES["echo"]
    assert (echo.tx, echo.rx, echo.rx_complete, echo.gate, echo.end) == (None, None, "any", "peer", "peer")
    assert {mode.end for mode in SERVER_MODES.values()} == {"peer"}


@pytest.mark.parametrize("mode", EVERY, ids=lambda mode: mode.name)
def test_rows_use_the_documented_words_only(mode: Mode) -> None:
    """A word that the rules at the head of the file do not explain is one that no engine obeys."""
    rules = inspect.getdoc(conversation) or ""
    assert f"``{mode.gate}``" in rules
    assert f"``{mode.rx_complete}``" in rules
    assert f"``{mode.tx_size}``" in rules
    assert f"``{mode.end}``" in rules
    assert mode.says
    assert "\n" not in mode.says


def test_rows_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CLIENT_MODES["0"].tx = 1  # type: ignore[misc]
