"""Two public programs that read NCPS's output, re-stated as strictly as they are, faults included.

One reads the rows and the ### lines of a client or server (Microsoft Virtual Client), the other the tables of a
client run (Azure telescope).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

# ---- the reader of rows and ### lines -----------------------------------------------------------------------------

RTT_NAMES = ("25", "median", "mean", "75", "90", "95", "99", "99.9", "99.99")


@dataclass(frozen=True)
class Metrics:
    figures: dict[str, float]
    rates: list[tuple[float, float]]


def read_metrics(text: str, warm_up_s: float) -> Metrics:
    figures = {}
    for name, pattern in (
        ("rx", r"^###RXGBPS\s([\d.]+)"),
        ("tx", r"^###TXGBPS\s([\d.]+)"),
        ("cps", r"^###ENDCPS\s(\d+)"),
    ):
        first = re.search(pattern, text, re.MULTILINE)
        if first:
            figures[name] = float(first[1])
    for prefix, known in (("SYNRTT", RTT_NAMES), ("REXMIT", ("rtconnpercentage", "rtperconn"))):
        first = re.search(rf"^###{prefix},(.*)", text, re.MULTILINE)
        for part in first[1].split(",") if first else []:
            pair = part.split(":")
            if len(pair) == 2 and pair[0].strip().lower() in known:
                figures[pair[0].strip().lower()] = float(pair[1])
    rates, column = [], 0
    for line in text.splitlines():
        if line == "":
            break
        tokens = [token for token in line.split(" ") if token]
        if "Conn/s" in tokens:
            column = tokens.index("Conn/s")
            continue
        at, rate = float(tokens[0]), float(tokens[column])  # any other text fails here and everything is lost
        if math.floor(at) > warm_up_s:
            rates.append((at, rate))
    return Metrics(figures, rates)


# ---- the reader of tables -------------------------------------------------------------------------------------------


def read_tables(text: str) -> dict[str, object]:
    out: dict[str, object] = {}
    if command := re.search(r"=== CMDLINE: (.+)", text):
        out["cmd"] = command[1]
        if threads := re.search(r"-r (\d+)", command[1]):
            out["thread_count"] = int(threads[1])
    if version := re.search(r"=== VERSION (.+)", text):
        out["version"] = version[1]
    for key, prefix in (("received", "RXGBPS"), ("sent", "TXGBPS")):
        if rate := re.search(rf"###{prefix} (.+)", text):
            out[key] = float(rate[1])
    title = r"=== Time \(ms\) to Nth connection establishment for first \d+ connections:\n"
    if table := re.search(title + r"(.+?)\n\n", text, re.DOTALL):
        rows_ = [line.split() for line in table[1].strip().split("\n")[1:]]
        out["times"] = [(int(r[1]), int(r[2]), int(r[3])) for r in rows_]
    if cps := re.search(r"###ENDCPS (\d+)", text):
        out["cps"] = int(cps[1])
    if table := re.search(r"=== SYN RTT \(us\) stats for first \d+ connections:\n(.+?)\n\n", text, re.DOTALL):
        names, values = (line.split()[1:] for line in table[1].strip().split("\n")[:2])
        out["synrtt"] = {name: int(value) for name, value in zip(names, values, strict=True)}
    if line := re.search(r"^###REXMIT.*$", text, re.MULTILINE):
        for part in line[0].split(",")[1:]:
            key, value = part.split(":")
            out[key] = float(value)
    return out
