"""Handshake rows of a capture, made by hand for the tests of what is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from ncps_capture import segments as sg
from ncps_capture.addresses import address_words

T0 = 1_700_000_000 * 10**9
MS = 1_000_000


def attempt(t_ms: float = 0, state: int = sg.ANSWERED, rtt_us: int = 1000, **fields: Any) -> np.ndarray:
    """One merged row; ``client`` and ``server`` are texts, other fields those of HANDSHAKE."""
    row = np.zeros(1, sg.HANDSHAKE)
    for end, text in (("client", fields.pop("client", "10.0.0.1")), ("server", fields.pop("server", "10.0.0.2"))):
        row[f"{end}_hi"], row[f"{end}_lo"] = address_words(text)
        row["ip_version"] = 6 if ":" in text else 4
    t_ns = T0 + round(t_ms * MS)
    row["t_syn_first_ns"] = row["t_syn_last_ns"] = row["t_syn_before_ns"] = row["t_order_ns"] = t_ns
    for name in ("t_synack_ns", "t_ack_ns", "rtt_ts_ns", "t_refused_ns"):
        row[name] = sg.UNKNOWN
    row["sport"], row["dport"], row["syn_n"], row["frame"], row["attempt"] = 1000, 80, 1, 1, 1
    row["vlan"], row["wscale"], row["state"] = sg.NO_VLAN, 255, state
    if state in (sg.ANSWERED, sg.SYNACK_ONLY):
        row["t_synack_ns"], row["synack_n"] = t_ns + rtt_us * 1000, 1
    if state == sg.ANSWERED:
        row["rtt_ts_ns"], row["flags"] = rtt_us * 1000, sg.F_RTT_EXACT
    if state in (sg.REFUSED, sg.ICMP_REFUSED):
        row["t_refused_ns"] = t_ns + rtt_us * 1000
    if state == sg.SYNACK_ONLY:
        row["syn_n"], row["t_syn_first_ns"], row["t_syn_last_ns"] = 0, sg.UNKNOWN, sg.UNKNOWN
    for name, value in fields.items():
        row[name] = value
    return row


def rows(*made: np.ndarray) -> np.ndarray:
    return np.concatenate(made) if made else np.zeros(0, sg.HANDSHAKE)
