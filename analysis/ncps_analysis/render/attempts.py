"""View: one record an attempt, as JSON lines or CSV: what a person opens beside Wireshark.

It must not know where the text goes. The one idea: columns are made from a whole array of rows at once, and both
formats are written from the same columns, so their keys, order and values cannot differ. Unknown is null, or empty.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ncps_capture.addresses import address_text
from ncps_capture.segments import (
    ANSWERED,
    F_AMBIGUOUS,
    F_CENSORED,
    F_CLOCK_ERROR,
    F_CLOCK_STEP,
    F_RTT_EXACT,
    F_TFO,
    NO_VLAN,
    SIMULTANEOUS,
    STATE_NAMES,
    SYNACK_ONLY,
    UNKNOWN,
    Handshakes,
    rtt_first_ns,
    syn_retrans,
    synack_to_ack_ns,
)

from ncps_analysis.attempt_tally import refuse_latency_ns, syn_repeats

_ABSENT_WSCALE: Final = 255

Column = Callable[[Handshakes], Sequence[Any]]


def _plain(name: str) -> Column:
    return lambda rows: rows[name].tolist()


def _flag(bit: int) -> Column:
    return lambda rows: (rows["flags"] & bit != 0).tolist()


def _known(values: npt.NDArray[np.int64], unknown: int = UNKNOWN) -> list[int | None]:
    return [None if value == unknown else value for value in values.tolist()]


def _time(name: str) -> Column:
    return lambda rows: _known(rows[name])


def _absent(name: str, unknown: int) -> Column:
    return lambda rows: _known(rows[name], unknown)


def _address(end: str) -> Column:
    def texts(rows: Handshakes) -> list[str]:
        versions = np.where(rows["ip_version"] == 6, 6, 4)
        keys = list(zip(rows[f"{end}_hi"].tolist(), rows[f"{end}_lo"].tolist(), versions.tolist(), strict=True))
        text = {key: address_text(*key) for key in set(keys)}
        return [text[key] for key in keys]

    return texts


def _rtt_last_ns(rows: Handshakes) -> list[int | None]:
    bad = (rows["state"] != ANSWERED) | (rows["t_syn_before_ns"] == UNKNOWN) | (rtt_first_ns(rows) == UNKNOWN)
    return _known(np.where(bad, UNKNOWN, rows["t_synack_ns"] - np.where(bad, 0, rows["t_syn_before_ns"])))


def _rtt_ts_ns(rows: Handshakes) -> list[int | None]:
    bad = (rows["state"] != ANSWERED) | (rows["flags"] & (F_CLOCK_ERROR | F_CLOCK_STEP) != 0)
    return _known(np.where(bad, UNKNOWN, rows["rtt_ts_ns"]))


_COLUMNS: Final[dict[str, Column]] = {
    "frame": _plain("frame"),
    "src": _address("client"),
    "sport": _plain("sport"),
    "dst": _address("server"),
    "dport": _plain("dport"),
    "isn": _plain("isn"),
    "attempt": _plain("attempt"),
    "state": lambda rows: [STATE_NAMES[state] for state in rows["state"].tolist()],
    "syn_n": _plain("syn_n"),
    "syn_repeats": lambda rows: syn_repeats(rows).tolist(),
    "syn_retrans": lambda rows: syn_retrans(rows).tolist(),
    "retrans_timeout": _plain("retrans_timeout"),
    "retrans_after_synack": _plain("retrans_after_synack"),
    "retrans_after_rst": _plain("retrans_after_rst"),
    "retrans_after_challenge": _plain("retrans_after_challenge"),
    "dup_syn": _plain("dup_syn"),
    "synack_n": _plain("synack_n"),
    "synack_retrans": _plain("synack_retrans"),
    "dup_synack": _plain("dup_synack"),
    "synack_isn_changed": _plain("synack_isn_changed"),
    "t_syn_first_ns": _time("t_syn_first_ns"),
    "t_syn_last_ns": _time("t_syn_last_ns"),
    "t_synack_ns": _time("t_synack_ns"),
    "rtt_first_ns": lambda rows: _known(rtt_first_ns(rows)),
    "rtt_last_ns": _rtt_last_ns,
    "rtt_ts_ns": _rtt_ts_ns,
    "rtt_exact": _flag(F_RTT_EXACT),
    "ambiguous": _flag(F_AMBIGUOUS),
    "synack_to_ack_ns": lambda rows: _known(synack_to_ack_ns(rows)),
    "refuse_latency_ns": lambda rows: _known(refuse_latency_ns(rows)),
    "simultaneous": lambda rows: (rows["state"] == SIMULTANEOUS).tolist(),
    "tfo": _flag(F_TFO),
    "syn_len": _plain("syn_len"),
    "mss": _absent("mss", 0),
    "window_scale": _absent("wscale", _ABSENT_WSCALE),
    "ttl": _plain("ttl"),
    "censored": _flag(F_CENSORED),
    "tunnel": _absent("tunnel", 0),
    "vlan": _absent("vlan", NO_VLAN),
}

KEYS: Final = ("file", *_COLUMNS)
"""Keys of a record and head of the CSV, in their order."""


def records(rows: Handshakes, files: Sequence[str]) -> list[tuple[Any, ...]]:
    """Values by KEYS of each attempt in merged rows; lone SYN-ACKs are no attempts. ``files``: names by source."""
    rows = rows[rows["state"] != SYNACK_ONLY]
    names = [files[source] for source in rows["source"].tolist()]
    return list(zip(names, *(column(rows) for column in _COLUMNS.values()), strict=True))


def csv_head() -> str:
    """The line of names, with its end of line."""
    return ",".join(KEYS) + "\n"


def csv_text(rows: Handshakes, files: Sequence[str]) -> str:
    """Lines of these rows, each with its end; true and false as in JSON, unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for record in records(rows, files):
        writer.writerow(["true" if v is True else "false" if v is False else v for v in record])
    return out.getvalue()


def jsonl_text(rows: Handshakes, files: Sequence[str]) -> str:
    """The same as one JSON object a line."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    return "".join(encode(dict(zip(KEYS, record, strict=True))) + "\n" for record in records(rows, files))
