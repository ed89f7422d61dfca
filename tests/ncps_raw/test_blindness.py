"""Captures that do not see everything: packets dropped, a process that is stopped, one direction, another interface,
translated addresses. Each run must end, say what it is blind to, and know no more than it saw.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from running import alive, capturing, finish, report, run, serving, start, until

pytestmark = pytest.mark.usefixtures("scratch")

PORTS = count(26_001, 10)
CLIENT, SERVER = "10.8.8.8", "10.9.9.9"


class Loaded:
    """A client under way that prints a line of JSON for each tenth of a second, and its capture process."""

    def __init__(self, port: int, *arguments: str) -> None:
        self.process = start(
            *("client", "127.0.0.1", "-p", str(port), "-r", "2", "-N", "50", "-i", "0.1", "--capture"),
            *("--format", "jsonl", *arguments),
        )
        self.rows_until(lambda row: row["source"] == "wire" and row["clean"])
        pid = until(lambda: capturing(self.process.pid), "the capture process holds a packet socket")
        assert isinstance(pid, int)
        self.capture = pid

    def rows_until(self, condition: Any) -> None:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if condition(json.loads(line)):
                return
        raise AssertionError("the client has ended")

    def connect(self, connections: int) -> None:
        """Return when so many more were established."""
        done = 0

        def enough(row: dict[str, Any]) -> bool:
            nonlocal done
            done += row["established"]
            return done >= connections

        self.rows_until(enough)

    def end(self, expected: int = 0) -> tuple[dict[str, Any], str]:
        """Its report and what it said to the person; ``expected``: its exit code."""
        self.process.send_signal(signal.SIGINT)
        code, out, err = finish(self.process)
        assert code == expected, err
        return report(out.splitlines()[-1]), err


@pytest.mark.capture
def test_drops_make_figures_unknown_and_invent_none() -> None:
    port = next(PORTS)
    with serving(port, "-b", "127.0.0.1"):
        client = Loaded(port, "--capture-buffer", "1M")
        os.kill(client.capture, signal.SIGSTOP)
        client.connect(8000)  # some thousands of handshakes fill the buffer
        os.kill(client.capture, signal.SIGCONT)
        client.rows_until(lambda row: row["source"] == "wire" and row["clean"])
        figures, _ = client.end()
    dropped, unknown = figures["dropped_by_capture"], figures["rtt_unknown"]
    assert dropped > 0
    assert figures["capture"]["died"] is None
    assert figures["connections"] > 8000
    assert 0 < unknown < figures["connections"]
    assert figures["syn_rtt_us"]["n"] + unknown == figures["connections"]
    assert figures["retrans_known"] == figures["syn_rtt_us"]["n"]
    assert figures["matched"] < figures["connections"]
    # Nothing is lost on loopback: what was not captured must not be taken for lost on the way.
    assert figures["syn_retrans"] == figures["retrans_disagree"] == 0
    assert figures["syn_retrans_failed"] is None
    share = unknown / figures["connections"]
    assert [f"{unknown:,} of {figures['connections']:,} connections are unknown" in p for p in figures["problems"]] == (
        [True] if share > 0.1 else []
    )
    (note,) = [note for note in figures["notes"] if "dropped" in note]
    assert note.startswith(
        f"the capture dropped {dropped:,} packets, so its handshakes were checked against the kernel"
    )


@pytest.mark.capture
def test_a_capture_that_stays_stopped_does_not_stop_the_run() -> None:
    port = next(PORTS)
    with serving(port, "-b", "127.0.0.1"):
        client = Loaded(port)
        os.kill(client.capture, signal.SIGSTOP)
        client.connect(500)
        figures, err = client.end(3)  # --capture asks for a capture, and there was none to the end
    died = "capture process did not answer for 5 s (stopped?) and was killed"
    assert err == f"ncps: {died}: handshakes after that are unknown\n"
    assert not alive(client.capture)
    assert figures["capture"]["died"] == died
    assert figures["capture"]["runs_as"].endswith("no capabilities")
    first, second = figures["problems"]
    assert first == f"the capture ended early ({died}): what it did not see is unknown"
    assert f"{figures['rtt_unknown']:,} of {figures['connections']:,} connections are unknown" in second
    assert figures["dropped_by_capture"] is None
    assert figures["rtt_source"] == "wire"
    assert 0 < figures["syn_rtt_us"]["n"] <= figures["connections"] - 500
    assert figures["rtt_unknown"] == figures["connections"] - figures["syn_rtt_us"]["n"]
    assert figures["syn_retrans"] == 0


# ---- a network whose ways there and back differ ------------------------------------------------------------


class Network:
    """Two namespaces and two links. Both ends have an address that belongs to neither link: the routes decide."""

    def __init__(self) -> None:
        self.a, self.b = (f"ncps-blind-{os.getpid()}-{side}" for side in "ab")

    def make(self) -> None:
        for name in (self.a, self.b):
            command("ip", "netns", "add", name)
        for link in (1, 2):
            near, far = f"a{link}", f"b{link}"
            self.on_a("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.b)
            for on, device, address in ((self.on_a, near, f"10.{link}.0.1"), (self.on_b, far, f"10.{link}.0.2")):
                on("ip", "addr", "add", f"{address}/24", "dev", device)
                on("sysctl", "-qw", f"net.ipv4.conf.{device}.rp_filter=0")
                on("ip", "link", "set", device, "up")
        for on, address in ((self.on_a, CLIENT), (self.on_b, SERVER)):
            on("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
            on("ip", "link", "set", "lo", "up")
            on("ip", "addr", "add", f"{address}/32", "dev", "lo")

    def routes(self, there: int, back: int) -> None:
        """Requests take one link and answers another."""
        self.on_a("ip", "route", "replace", SERVER, "via", f"10.{there}.0.2", "src", CLIENT)
        self.on_b("ip", "route", "replace", CLIENT, "via", f"10.{back}.0.1", "src", SERVER)

    def on_a(self, *words: str) -> None:
        command("ip", "netns", "exec", self.a, *words)

    def on_b(self, *words: str) -> None:
        command("ip", "netns", "exec", self.b, *words)

    def fifty_connections(self, interface: str, code: int = 3) -> dict[str, Any]:
        """Made from one end to the other, captured on one interface: the client's report, that ended with ``code``.

        An interface that was named asks for a capture, which fails where it shows no connection.
        """
        port = next(PORTS)
        with serving(port, "-b", SERVER, before=("ip", "netns", "exec", self.b)):
            ended, out, err = run(
                *("client", SERVER, "-p", str(port), "-r", "2", "-N", "50", "--no-reconnect"),
                *("--interface", interface, "--format", "json"),
                before=("ip", "netns", "exec", self.a),
            )
        assert (ended, err) == (code, "")
        figures = report(out)
        assert figures["connections"] == figures["established"] == 50
        assert figures["dropped_by_capture"] == 0
        return figures

    def remove(self) -> None:
        for name in (self.a, self.b):
            subprocess.run(["ip", "netns", "del", name], check=False)


def command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network()
    try:
        made.make()
        yield made
    finally:
        made.remove()


def the_kernel_answers(figures: dict[str, Any]) -> None:
    """Nothing is taken from the wire, and nothing unknown is written as a figure."""
    assert (figures["rtt_source"], figures["retrans_source"]) == ("kernel", "kernel")
    assert (figures["syn_rtt_us"]["n"], figures["syn_retrans"], figures["rtt_unknown"]) == (50, 0, 0)
    for name in ("synack_retrans", "syn_repeats", "syn_repeat_causes", "retrans_disagree"):
        assert figures[name] is None, name
    assert figures["path_rtt_us"]["n"] == figures["overhead_after_us"]["n"] == 0


@pytest.mark.namespaces
@pytest.mark.capture
def test_both_directions_on_one_link_leave_nothing_open(network: Network) -> None:
    """What the others differ from."""
    network.routes(there=1, back=1)
    figures = network.fifty_connections("a1", 0)
    assert figures["problems"] == figures["notes"] == []
    assert (figures["rtt_source"], figures["matched"], figures["syn_rtt_us"]["n"]) == ("wire", 50, 50)


@pytest.mark.namespaces
@pytest.mark.capture
@pytest.mark.parametrize(("interface", "seen", "missed"), [("a1", "SYN", "SYN-ACK"), ("a2", "SYN-ACK", "SYN")])
def test_one_direction_is_named_and_no_loss(network: Network, interface: str, seen: str, missed: str) -> None:
    network.routes(there=1, back=2)
    figures = network.fifty_connections(interface)
    (problem,) = figures["problems"]
    assert problem.startswith(
        f"captured 50 {seen}s on {interface} but no {missed}, while connections were established: one direction only?"
    )
    the_kernel_answers(figures)
    assert figures["syn_retrans_failed"] is None


@pytest.mark.namespaces
@pytest.mark.capture
def test_another_interface_is_asked_about(network: Network) -> None:
    network.routes(there=1, back=1)
    figures = network.fifty_connections("a2")
    assert figures["problems"] == [
        "none of 50 connections was found among 0 captured attempts on a2: is it the interface they use?"
    ]
    the_kernel_answers(figures)


@pytest.mark.namespaces
@pytest.mark.capture
@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")
def test_translated_addresses_are_suspected(network: Network) -> None:
    """A capture sees what leaves this machine: behind the translation that the sockets do not know of."""
    network.routes(there=1, back=1)
    network.on_a(
        "nft",
        "add table ip blind; add chain ip blind out { type nat hook postrouting priority 100; };"
        f"add rule ip blind out ip daddr {SERVER} snat to 10.1.0.1",
    )
    try:
        figures = network.fifty_connections("a1")
    finally:
        network.on_a("nft", "delete table ip blind")
    (problem,) = figures["problems"]
    assert problem.startswith(
        "none of 50 connections was found in the capture on a1, but 50 captured attempts share an"
    )
    assert problem.endswith("NAT between client and capture?")
    the_kernel_answers(figures)
