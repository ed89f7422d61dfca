"""What the client says of each handshake, held against the relay that lost its SYNs, tcpdump, tshark and the kernel.

The relay's log says what was sent and what was lost; expectations come from there and never from code under test.
A second capture of the same moment (tcpdump) goes through the same table, and tshark counts that file by itself.
"""

import signal
import struct
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
from ncps_analysis.records import CONNECTION, Run
from ncps_analysis.runfile import load_run
from ncps_capture.addresses import address_words
from ncps_capture.capfile import open_capture
from ncps_capture.decode import decode
from ncps_capture.handshake import HandshakeTable, books_of, merge_rows
from ncps_capture.segments import ANSWERED, F_CLOCK_STEP, HANDSHAKE, UNKNOWN, Handshakes, rtt_first_ns, syn_retrans
from ncps_capture.spool import read_spool
from running import finish, report, until

from ncps_raw.lab.lab import Lab
from ncps_raw.lab.logbook import READ, WRITTEN, Log
from ncps_raw.lab.network import A_TO_B, B_TO_A, Network, Rule
from ncps_raw.lab.packets import SYN_KIND, SYNACK_KIND, TCP_KINDS

pytestmark = [pytest.mark.namespaces, pytest.mark.capture]

MS = 1_000_000
DELAY_NS = 10 * MS
TIMEOUT_NS = 900 * MS
"""Linux waits a second for the answer to a SYN, a little less where timers are coarse."""
US = 1000
"""Captures cut their stamps to microseconds, the relay does not."""

Key = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A run: which packets the path drops, how many connections, over what."""

    kind: str
    connections: int
    ip: int = 4
    timestamps: int = 1
    options: tuple[str, ...] = ()


CASES = {
    "syns": Case("syn", 2000),
    "syns-ipv6": Case("syn", 500, ip=6),
    "syns-no-timestamps": Case("syn", 500, timestamps=0),
    # Held open so long that the server's repeats of a SYN-ACK are seen by both ends.
    "synacks": Case("synack", 500, options=("--hold", "500ms")),
}
EVERY = 50


@dataclass(frozen=True)
class Played:
    """What all sides say of one run."""

    report: dict[str, Any]  # the client's
    served: dict[str, Any]  # the server's, which captured too
    run: Run
    rows: Handshakes  # the client's live table
    own_file: Path  # what the client's capture wrote (-w)
    other_file: Path  # what tcpdump wrote meanwhile
    counters: dict[str, int]
    log: Log

    def syns(self) -> dict[Key, list[int]]:
        """Of each attempt, when the relay read its SYNs at the client's end."""
        return self._times(SYN_KIND, READ, A_TO_B)

    def synacks(self) -> dict[Key, list[int]]:
        """Of each attempt, when the relay wrote its SYN-ACKs at the client's end."""
        return self._times(SYNACK_KIND, WRITTEN, B_TO_A)

    def _times(self, kind: int, event: int, direction: int) -> dict[Key, list[int]]:
        log = self.log
        times: dict[Key, list[int]] = defaultdict(list)
        for row in log[(log["kind"] == kind) & (log["event"] == event) & (log["direction"] == direction)]:
            src, dst = (int(row["src_hi"]), int(row["src_lo"])), (int(row["dst_hi"]), int(row["dst_lo"]))
            if kind == SYN_KIND:
                key = (*src, *dst, int(row["sport"]), int(row["dport"]), int(row["seq"]))
            else:
                key = (*dst, *src, int(row["dport"]), int(row["sport"]), (int(row["ack"]) - 1) % 2**32)
            times[key].append(int(row["t_ns"]))
        return times


def keys(rows: Handshakes) -> list[Key]:
    names = ("client_hi", "client_lo", "server_hi", "server_lo", "sport", "dport", "isn")
    return [tuple(int(row[name]) for name in names) for row in rows]


def by_ports(rows: Handshakes) -> Handshakes:
    """In an order that no clock has a part in. The system may choose a port twice, once it is free again."""
    return rows[np.lexsort((rows["isn"], rows["dport"], rows["sport"]))]


def play(case: Case, ncps: str, folder: Path) -> Played:
    folder.mkdir()
    rule = Rule("drop", case.kind, nth=(1,), attempts=EVERY)
    own, other, saved = folder / "own.pcap", folder / "other.pcap", folder / "run"
    text = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Lab(Network.symmetric(DELAY_NS, rule), {"net.ipv4.tcp_timestamps": case.timestamps}) as lab:
        address = lab.b.ipv4 if case.ip == 4 else lab.b.ipv6
        both = ["-p", "10001", "-r", "2", "--capture", "--format", "json"]
        server = lab.b.run([ncps, "server", "-b", address, "--interface", "wan0", *both], **text)
        wait_for(server, "listening")
        options = "-i wan0 -s 160 -B 16384 --immediate-mode -U -Z root"
        tcpdump = lab.a.run(["tcpdump", *options.split(), "-w", str(other), "tcp"], **text)
        wait_for(tcpdump, "listening on wan0")
        client = [ncps, "client", address, *both, "-N", str(case.connections), "-P", "100", "-M", "0"]
        client += ["--no-reconnect", "-t", "30s", "-w", str(own), "--run", str(saved), *case.options]
        code, out, err = finish(lab.a.run(client, **text))
        assert (code, err) == (0, "")
        server.send_signal(signal.SIGTERM)
        _, served, _ = finish(server)
        assert lab.a.device_losses() == lab.b.device_losses() == 0
        log = lab.relay.log()
        at_a = ((log["event"] == READ) & (log["direction"] == A_TO_B)) | (
            (log["event"] == WRITTEN) & (log["direction"] == B_TO_A)
        )
        passed = int(np.count_nonzero(at_a & np.isin(log["kind"], list(TCP_KINDS))))
        until(lambda: packets_in(other) >= passed, "tcpdump writing every packet")
        tcpdump.send_signal(signal.SIGINT)
        _, _, said = finish(tcpdump)
        assert "\n0 packets dropped by kernel" in said
    counters = lab.relay.counters()
    assert not any(name.startswith("unwritten") for name in counters)
    unpacked = folder / "unpacked"
    unpacked.mkdir()
    run = load_run(saved, str(unpacked))
    assert run.wire is not None
    rows = merge_rows(np.concatenate([read_spool(path, HANDSHAKE) for path in run.wire.handshake_files]))
    return Played(report(out), report(served), run, rows, own, other, counters, lab.relay.log())


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    said = next((line for line in process.stderr if word in line), None)
    assert said is not None, f"{process.args!r} has ended"


def packets_in(path: Path) -> int:
    """Whole records of a capture that is being written."""
    if path.stat().st_size <= 24:
        return 0
    file = open_capture(path)
    return sum(len(batch.offsets) for batch in file.batches())


def table_of(path: Path) -> Handshakes:
    """A saved capture through the same table as live packets."""
    table, last_ns = HandshakeTable(), 0
    for batch in open_capture(path).batches():
        segments, _ = decode(batch)
        table.add(segments)
        last_ns = max(last_ns, int(batch.t_ns.max()))
    return merge_rows(table.finish(last_ns))


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, ncps: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Played]]:
    """Runs mostly wait, so two are under way at a time; each begins once, when first asked for or before."""
    folder = tmp_path_factory.mktemp("truth")
    wanted = dict.fromkeys(item.callspec.params["case"] for item in request.session.items if item.path == request.path)
    with ThreadPoolExecutor(2) as pool:
        begun: dict[str, Future[Played]] = {
            name: pool.submit(play, CASES[name], ncps, folder / name) for name in wanted
        }
        try:
            yield lambda name: begun[name].result()
        finally:
            pool.shutdown(cancel_futures=True)


every_case = pytest.mark.parametrize("case", CASES)
lost_syns = pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.kind == "syn"])


# ---- against the relay ---------------------------------------------------------------------------------------


@lost_syns
def test_retransmits_are_the_syns_that_the_relay_dropped(case: str, runs: Callable[[str], Played]) -> None:
    played = runs(case)
    dropped = CASES[case].connections // EVERY
    assert played.counters["dropped.syn"] == dropped
    assert played.report["syn_retrans"] == played.report["syn_repeats"] == dropped
    assert played.report["syn_repeat_causes"]["timeout"] == dropped
    assert played.report["synack_retrans"] == 0
    assert played.report["established"] == CASES[case].connections
    assert played.report["matched_share"] == 1


@pytest.mark.parametrize("case", ["synacks"])
def test_a_lost_synack_moves_the_servers_figure_and_the_clients_with_its_timeout(
    case: str, runs: Callable[[str], Played]
) -> None:
    """Both ends time out after about a second: which is first, and what still arrives, only the relay knows."""
    played = runs(case)
    lost = CASES[case].connections // EVERY
    assert played.counters["dropped.synack"] == lost
    assert played.report["syn_retrans"] == played.counters["repeated.syn"] > 0
    arrived = played.synacks()
    assert played.report["synack_retrans"] == sum(len(times) - 1 for times in arrived.values())
    # At the server's end every SYN-ACK is seen, those that are lost later too.
    assert played.served["synack_retrans"] == played.counters["repeated.synack"] >= lost
    assert played.served["syn_retrans"] == played.counters["repeated.syn"]
    assert len(arrived) == played.report["established"] == CASES[case].connections


@every_case
def test_each_attempt_is_the_one_the_relay_saw(case: str, runs: Callable[[str], Played]) -> None:
    played = runs(case)
    syns, synacks = played.syns(), played.synacks()
    assert sorted(keys(played.rows)) == sorted(syns)
    for key, row in zip(keys(played.rows), played.rows, strict=True):
        assert row["state"] == ANSWERED
        assert (row["syn_n"], row["synack_n"]) == (len(syns[key]), len(synacks[key]))
        assert (row["dup_syn"], row["dup_synack"]) == (0, 0)
        # Seen before the relay reads it, and after the relay has written it.
        assert row["t_syn_first_ns"] <= syns[key][0]
        assert row["t_syn_last_ns"] <= syns[key][-1]
        assert row["t_synack_ns"] >= synacks[key][0] - US


@every_case
def test_the_kernel_does_not_see_what_a_lost_packet_cost(case: str, runs: Callable[[str], Played]) -> None:
    played = runs(case)
    figures = played.report
    assert figures["syn_rtt_us"]["max"] >= TIMEOUT_NS // US
    assert figures["syn_rtt_us"]["p99"] >= TIMEOUT_NS // US > figures["syn_rtt_us"]["p50"] >= 2 * DELAY_NS // US
    assert figures["connect_us"]["max"] >= figures["syn_rtt_us"]["max"]
    records = np.concatenate([read_spool(path, CONNECTION) for path in played.run.connection_files])
    assert len(played.rows) == len(records) == CASES[case].connections
    wire: dict[Key, list[Any]] = defaultdict(list)  # one after another where the system chose a port twice
    for row in played.rows[np.argsort(played.rows["t_syn_first_ns"])]:
        wire[int(row["sport"]), int(row["dport"])].append(row)
    repeated = 0
    for record in records[np.argsort(records["start_ns"])]:
        row = wire[int(record["lport"]), int(record["rport"])].pop(0)
        assert record["kernel_retrans"] == row["syn_n"] - 1
        if row["syn_n"] == 1:
            assert record["kernel_rtt_us"] >= 2 * DELAY_NS // US
            continue
        repeated += 1
        assert rtt_first_ns(row.reshape(1))[0] >= TIMEOUT_NS
        if not CASES[case].timestamps:
            assert record["kernel_rtt_us"] == 0  # no measure of a SYN that was sent twice (Karn)
        elif case != "synacks":  # there the server's repeat may echo the first SYN, and the kernel then tells
            assert 2 * DELAY_NS // US <= record["kernel_rtt_us"] < TIMEOUT_NS // US
    assert repeated > 0
    unmeasured = 0 if CASES[case].timestamps else repeated
    assert figures["kernel_rtt_us"]["n"] == CASES[case].connections - unmeasured
    if case != "synacks":
        assert figures["kernel_rtt_us"]["max"] < TIMEOUT_NS // US


# ---- against other captures of the same moment ---------------------------------------------------------------


@every_case
def test_what_the_client_saved_gives_exactly_its_live_table(case: str, runs: Callable[[str], Played]) -> None:
    played = runs(case)
    assert np.array_equal(table_of(played.own_file), played.rows)


NOT_COMPARED = {
    "frame",  # tcpdump saves all segments, so it counts others
    "source",
    "rst_ignored",  # the client's filter admits only RSTs that refuse
    "t_ack_ns",  # nor does it admit bare ACKs
}


@every_case
def test_tcpdump_at_the_same_moment_gives_the_same_attempts(case: str, runs: Callable[[str], Played]) -> None:
    """The same but for the stamps: each packet socket reads the clock for itself, usually within 3 us of the other.

    How far apart they may be is up to whoever interrupts the kernel between the two, so each duration is only held to
    less than the path's delay, beyond which another packet would have been meant, and their median to 20 us.
    """
    played = runs(case)
    other = table_of(played.other_file)
    mine, theirs = by_ports(played.rows), by_ports(other)
    assert keys(mine) == keys(theirs)
    durations = [name for name in HANDSHAKE.names or () if name.startswith(("t_", "rtt_"))]
    for name in HANDSHAKE.names or ():
        if name in NOT_COMPARED:
            continue
        if name not in durations:
            assert np.array_equal(mine[name], theirs[name]), name
            continue
        known = mine[name] != UNKNOWN
        assert np.array_equal(known, theirs[name] != UNKNOWN), name
        apart = np.abs(mine[name][known] - theirs[name][known])
        if len(apart):
            assert apart.max() < DELAY_NS, name
            assert np.median(apart) <= 20 * US, name
    apart = np.abs(rtt_first_ns(mine) - rtt_first_ns(theirs))
    assert apart.max() < DELAY_NS
    assert np.median(apart) <= 20 * US


# ---- against tshark --------------------------------------------------------------------------------------------


@dataclass
class Counted:
    """What tshark lists of one attempt."""

    syns: int = 0
    synacks: int = 0
    marked: int = 0  # SYNs that its analysis calls retransmissions
    first_syn_ns: int = 0
    first_synack_ns: int = 0


@cache
def tshark() -> str:
    found = which("tshark")
    if found is None:
        pytest.skip("tshark is not installed: nothing independent has counted this file")
    return found


FIELDS = (
    *("frame.time_epoch", "ip.src", "ipv6.src", "ip.dst", "ipv6.dst", "tcp.srcport", "tcp.dstport"),
    *("tcp.seq_raw", "tcp.ack_raw", "tcp.flags.ack", "tcp.analysis.retransmission"),
)


def count_with_tshark(path: Path) -> dict[Key, Counted]:
    command = [tshark(), "-r", str(path), "-Y", "tcp.flags.syn == 1", "-T", "fields"]
    command += [word for name in FIELDS for word in ("-e", name)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[Key, Counted] = defaultdict(Counted)
    for line in listed.splitlines():
        epoch, src4, src6, dst4, dst6, sport, dport, seq, ack, is_answer, marked = line.split("\t")
        seconds, _, fraction = epoch.partition(".")
        t_ns = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0"))
        src, dst = address_words(src4 or src6), address_words(dst4 or dst6)
        if is_answer == "1":
            one = found[(*dst, *src, int(dport), int(sport), (int(ack) - 1) % 2**32)]
            one.first_synack_ns = one.first_synack_ns or t_ns
            one.synacks += 1
        else:
            one = found[(*src, *dst, int(sport), int(dport), int(seq))]
            one.first_syn_ns = one.first_syn_ns or t_ns
            one.syns += 1
            one.marked += bool(marked)
    return found


@every_case
def test_tshark_counts_and_times_the_same(case: str, runs: Callable[[str], Played]) -> None:
    played = runs(case)
    counted = count_with_tshark(played.other_file)
    rows = table_of(played.other_file)
    assert sorted(counted) == sorted(keys(rows))
    for key, row in zip(keys(rows), rows, strict=True):
        one = counted[key]
        assert (row["syn_n"], row["synack_n"]) == (one.syns, one.synacks)
        assert (row["t_syn_first_ns"], row["t_synack_ns"]) == (one.first_syn_ns, one.first_synack_ns)
        assert syn_retrans(row.reshape(1))[0] == one.marked
    assert sum(one.marked for one in counted.values()) == played.counters["repeated.syn"] > 0


# ---- a clock that is set back ----------------------------------------------------------------------------------


def set_back(source: Path, target: Path, by_s: int) -> int:
    """Copy a capture as if the clock had been set back in its middle; the time of the first packet after that."""
    data = bytearray(source.read_bytes())
    at, records = 24, list[tuple[int, int, int]]()
    while at < len(data):
        seconds, fraction, caplen, _ = struct.unpack_from("<IIII", data, at)
        records.append((at, seconds, fraction))
        at += 16 + caplen
    times = [seconds * 1_000_000_000 + fraction * US for _, seconds, fraction in records]
    # At a pause, so that no two packets around it share a microsecond or have changed places.
    middle = next(i for i in range(len(times) // 2, len(times)) if times[i] - max(times[:i]) > 50 * US)
    for at, seconds, _ in records[middle:]:
        struct.pack_into("<I", data, at, seconds - by_s)
    target.write_bytes(data)
    return times[middle]


@pytest.mark.parametrize("case", ["syns"])
def test_a_clock_set_back_takes_the_round_trips_that_were_open_and_no_others(
    case: str, runs: Callable[[str], Played], tmp_path: Path
) -> None:
    """In a saved capture: the machine's clock belongs to everybody. More than a second, or it is mere disorder."""
    straight = runs(case).rows
    stepped_ns = set_back(runs(case).own_file, tmp_path / "stepped.pcap", 5)
    rows = table_of(tmp_path / "stepped.pcap")
    assert sorted(keys(rows)) == sorted(keys(straight))
    rows, straight = by_ports(rows), by_ports(straight)
    open_then = (straight["t_syn_first_ns"] < stepped_ns) & (straight["t_synack_ns"] >= stepped_ns)
    assert 0 < np.count_nonzero(open_then) < len(rows)
    assert np.array_equal((rows["flags"] & F_CLOCK_STEP) != 0, open_then)
    assert np.array_equal(rtt_first_ns(rows), np.where(open_then, UNKNOWN, rtt_first_ns(straight)))
    assert np.array_equal(syn_retrans(rows), syn_retrans(straight))
    assert books_of(rows).clock_step == np.count_nonzero(open_then)
