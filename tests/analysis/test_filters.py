"""Selections: what is typed, and which rows that means."""

import numpy as np
import pytest
from made_attempts import MS, T0, attempt, rows
from ncps_analysis.filters import Moment, choose, ports, selection
from ncps_capture import segments as sg
from ncps_capture.errors import UsageError

MADE = rows(
    attempt(0),
    attempt(1000, client="10.0.9.9", dport=443),
    attempt(2000, sg.REFUSED, server="2001:db8::5", client="2001:db8:1::1", sport=5555),
    attempt(3000, sg.SYNACK_ONLY),
)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, [0, 1, 2, 3]),
        ({"host": "10.0.0.1"}, [0, 3]),
        ({"host": "10.0.0.0/16"}, [0, 1, 3]),
        ({"host": "10.0.9.0/24,2001:db8::/64"}, [1, 2]),
        ({"host": "::/0"}, [0, 1, 2, 3]),
        ({"host": "0.0.0.0/0"}, [0, 1, 3]),
        ({"host": "fe80::1%eth0"}, []),
        ({"port": "443,5000-6000"}, [1, 2]),
        ({"state": "answered"}, [0, 1]),
        ({"begin": "1"}, [1, 2, 3]),
        ({"begin": "0.5", "end": "2"}, [1]),
        ({"begin": "2023-11-14T22:13:21Z"}, [1, 2, 3]),
        ({"begin": "2023-11-14T23:13:21.000000001+01:00"}, [2, 3]),
        ({"end": "2023-11-14 22:13:21"}, [0]),
        ({"host": "10.0.0.0/8", "port": "80"}, [0, 3]),
    ],
)
def test_what_is_chosen(given: dict[str, str], chosen: list[int]) -> None:
    wanted = selection(**given)
    assert np.flatnonzero(choose(MADE, wanted, T0)).tolist() == chosen
    assert bool(wanted) == bool(given)
    assert all(value in wanted.text for value in given.values())


def test_moments_are_exact() -> None:
    wanted = selection(begin="1.000000001", end="2023-11-14T22:13:20.123456789Z")
    assert wanted.begin == Moment(1_000_000_001, True, "1.000000001")
    assert wanted.end is not None
    assert wanted.end.at(T0) == T0 + 123 * MS + 456_789
    assert wanted.begin.at(T0) == T0 + 1_000_000_001


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"host": "www"}, "--host must be numeric"),
        ({"host": "10.0.0.1/40"}, "--host must be numeric"),
        ({"host": ","}, "--host must be numeric"),
        ({"port": "70000"}, "upwards within 0-65535"),
        ({"port": "9-8"}, "upwards within 0-65535"),
        ({"port": "http"}, "--port must be ports"),
        ({"state": "answered,dead"}, "--state must be of answered"),
        ({"begin": "soon"}, "--from must be seconds"),
        ({"end": "2023-13-01T00:00:00"}, "--to must be seconds"),
        ({"begin": "3", "end": "2"}, "--from 3 is not before --to 2"),
    ],
)
def test_what_cannot_be_meant(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        selection(**given)


def test_ports() -> None:
    assert ports("80, 1-2,65535", "--port") == ((80, 80), (1, 2), (65535, 65535))
