"""The capture process in a network of its own: refusals by a firewall, an interface that goes down."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ncps_capture.handshake import merge_rows
from ncps_capture.segments import HANDSHAKE, ICMP_REFUSED, REFUSED, Books
from ncps_capture.spool import read_spool

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(
        not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("unshare") and shutil.which("nft")),
        reason="needs root, unshare and nft: a network namespace with a firewall rule",
    ),
]

IN_NAMESPACE = """
import errno, json, select, socket, subprocess, sys
from dataclasses import asdict
from ncps_capture.process import CaptureProcess
from ncps_capture.segments import CaptureSpec

def run(*command):
    subprocess.run(command, check=True)

def errors(*targets):
    # Begin all connects at once, then name what became of each.
    begun = []
    for address, port in targets:
        begun.append(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET))
        begun[-1].setblocking(False)
        assert begun[-1].connect_ex((address, port)) in (errno.EINPROGRESS, errno.ECONNREFUSED)
    out = []
    for client in begun:
        waiting = select.poll()
        waiting.register(client, select.POLLOUT)
        waiting.poll(20_000)
        out.append(errno.errorcode.get(client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "none"))
        client.close()
    return out

run("ip", "link", "set", "lo", "up")
capture = CaptureProcess.start(CaptureSpec("lo", (), loopback=True, spool_dir=sys.argv[1]))
capture.wait_ready()
"""
REFUSALS = """
run("nft", "add table inet t; add chain inet t c { type filter hook input priority 0; };"
    "add rule inet t c tcp dport 8 ip version 4 reject with icmp type port-unreachable;"
    "add rule inet t c tcp dport 8 ip6 version 6 reject with icmpv6 type port-unreachable")
seen = errors(*[(address, port) for port in (7, 7, 7, 8) for address in ("127.0.0.1", "::1")])
result = capture.finish(expected_answered=0)
print(json.dumps({"errors": seen, "totals": capture.counters.read(), "result": asdict(result)}))
"""
INTERFACE_LOST = """
run("ip", "link", "set", "lo", "down")
capture._process.join(30)
print(json.dumps({"alive": capture.alive(), "result": asdict(capture.finish(expected_answered=0))}))
"""


def in_namespace(script: str, folder: Path) -> dict[str, object]:
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", IN_NAMESPACE + script, folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    out: dict[str, object] = json.loads(done.stdout)
    return out


def test_refusals_by_reset_and_by_icmp_are_told_apart(tmp_path: Path) -> None:
    """On loopback the ICMP error may arrive inside the connect() that caused it, and Linux ignores it there. Then the
    SYN is sent again after a second and refused again: one attempt with a true repeat, settled in two parts.
    """
    said = in_namespace(REFUSALS, tmp_path)
    assert said["errors"] == ["ECONNREFUSED"] * 8
    rows = merge_rows(read_spool(said["result"]["handshake_files"][0], HANDSHAKE))
    books = Books(**said["result"]["books"])
    assert books.problems() == []
    assert books.syn == books.syn_counted == rows["syn_n"].sum()
    assert len(rows) == 8
    by_reset, by_icmp = rows[rows["state"] == REFUSED], rows[rows["state"] == ICMP_REFUSED]
    assert by_reset["syn_n"].tolist() == [1] * 6
    assert len(by_icmp) == 2
    assert by_icmp["retrans_timeout"].tolist() == (by_icmp["syn_n"] - 1).tolist()
    codes = zip(by_icmp["ip_version"], by_icmp["icmp_type"], by_icmp["icmp_code"], strict=True)
    assert sorted(codes) == [(4, 3, 3), (6, 1, 4)]
    assert said["totals"]["answered_clean"] == 0


def test_an_interface_that_goes_down_ends_the_capture_with_its_reason(tmp_path: Path) -> None:
    said = in_namespace(INTERFACE_LOST, tmp_path)
    assert said["alive"] is False
    assert said["result"]["died"] == "cannot go on capturing on lo: The interface went down"
    assert said["result"]["dropped"] is None
