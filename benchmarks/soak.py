"""Ten minutes at full rate on loopback: ``make soak``. Memory must be flat after three, all books agree at the end.

Needs the right to capture. Shorter for a try: ``make soak ARGS='--minutes 1'`` (memory is then judged after a third).
Prints a line every ten seconds and a verdict; exit code 1 if anything grew or disagreed.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

OURS = str(Path(sys.executable).with_name("ncps"))
PORT = 23_301
EVERY_S = 10
ALLOWED_GROWTH_KB = 8_192  # pages of allocators that settle late; a leak of one byte a connection is larger
FLAT_AFTER = 0.3  # of the run


def main(argv: list[str]) -> int:
    minutes = float(argv[argv.index("--minutes") + 1]) if "--minutes" in argv else 10.0
    server = subprocess.Popen(
        [OURS, "server", "-b", "127.0.0.1", "-p", str(PORT), "-r", "2", "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    print(server.stderr.readline().strip(), flush=True)
    client = subprocess.Popen(
        [OURS, "client", "127.0.0.1", *f"-p {PORT} -r 2 -N 200 -t {minutes}m --capture --format json".split()],
        stdout=subprocess.PIPE,
        text=True,
    )
    began = time.monotonic()
    sizes: dict[int, list[int]] = {}
    while client.poll() is None:
        try:
            client.wait(EVERY_S)
        except subprocess.TimeoutExpired:
            passed = time.monotonic() - began
            now = {pid: rss for top in (server.pid, client.pid) for pid, rss in family(top)}
            print(f"{passed:7.0f} s  " + "  ".join(f"{pid}: {rss:,} kB" for pid, rss in now.items()), flush=True)
            if FLAT_AFTER * minutes * 60 <= passed < minutes * 60:
                for pid, rss in now.items():
                    sizes.setdefault(pid, []).append(rss)
    made = json.loads(client.communicate()[0])
    server.send_signal(signal.SIGTERM)
    served = json.loads(server.communicate()[0])
    return verdict(made, served, sizes)


def family(pid: int) -> list[tuple[int, int]]:
    """(process, resident kB) of a process and its children."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [(one, rss(one)) for one in (pid, *children)]
    except OSError:
        return []


def rss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def verdict(made: dict, served: dict, sizes: dict[int, list[int]]) -> int:
    faults = []
    for pid, seen in sizes.items():
        growth = max(seen[len(seen) // 2 :]) - max(seen[: max(1, len(seen) // 2)])
        if growth > ALLOWED_GROWTH_KB:
            faults.append(f"process {pid} grew by {growth:,} kB")
    counts = {
        "client attempted": made["attempted"],
        "client established": made["established"],
        "server established": served["established"],
        "attempts on the wire": made["capture"]["books"]["attempts"],
        "matched": made["matched"],
    }
    print("\n".join(f"{name:22} {number:,}" for name, number in counts.items()))
    print(f"connections/s          {made['cps']:,.1f}")
    print(f"dropped by capture     {made['dropped_by_capture']}")
    if len(set(counts.values())) != 1:
        faults.append("the counts differ")
    faults += made["problems"] + served["problems"]
    print("\n".join(f"FAULT: {fault}" for fault in faults) or "flat, and all counts agree")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
