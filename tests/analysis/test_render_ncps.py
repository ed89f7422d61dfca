import re
from dataclasses import replace

import numpy as np
import pytest
from made_runs import MONOTONIC, S, clean, finish, interval, lossy, rows, unknown_rtt
from ncps_analysis.model import InTime
from ncps_analysis.records import ClockOffset, ScheduleFacts
from ncps_analysis.render import ncps
from ncps_output import NCPS_ITSELF, printed
from ncps_readers import read_metrics, read_tables


def test_our_rows_and_header_are_ncps_to_the_character():
    header, first, second = NCPS_ITSELF.split("\n")[:3]
    assert ncps.header() == header
    assert ncps.row(replace(interval(1.002), established=69_065.9, closed=69_058.9)) == first
    repeated = interval(
        2.002, open_now=14, pending=1586, established=69_987, closed=69_980, rx_bytes=69_978_000, tx_bytes=69_984_000,
        retransmits=606, clean=69_381, clean_rtt_us=12_962, repeated=606, repeated_rtt_us=161_224, ports_wrapped=True,
    )  # fmt: skip
    assert ncps.row(repeated) == second


def test_our_report_is_ncps_to_the_character_where_ncps_speaks():
    """The same figures in: the lines of NCPS out, each once and in order."""
    made = lossy(1000, command_line="./ncps2 -c 10.1.0.5 -wt 5 -t 15", version="1.5")
    report = replace(
        made.report(),
        rx_gbps=0.451,
        tx_gbps=0.449,
        milestones=tuple(
            replace(made.report().milestones[0], n=n, t_ms=t) for n, t in ((100_000, 1678), (556_947, 10_002))
        ),
        in_time=InTime(556_947, replace(
            made.report().syn_rtt_us,
            p25=2342, p50=4441, mean=15996.9, p75=13249, p90=24443, p95=38198, p99=79657, p99_9=1038000, p99_99=1057000,
            max=4_057_000,
        ), retrans_share_percent=1.72784, retrans_per_connection=1.01376),
    )  # fmt: skip
    expected = NCPS_ITSELF[NCPS_ITSELF.index("\n\n") + 1 :].rstrip("\n")
    ours = ncps.report(report)
    ncps_part = ours[: ours.index("\n", ours.index("###REXMIT"))]
    assert ncps_part.replace(",max:4057000", "") == expected


def test_brief_rows_are_ncps_to_the_character():
    made = replace(
        interval(1.0), open_now=14, established=69_065.94, clean_rtt_us=12_962, repeated_rtt_us=161_224, seconds=1.0,
        ports_wrapped=True,
    )  # fmt: skip
    assert ncps.header_of(1) == "       N      CPS SYNRTT0  SYNRTTx"
    assert ncps.row_of(made, 1) == "      14  69065.9   12962   161224"
    assert (ncps.header_of(2), ncps.row_of(made, 2)) == ("CPS", "69065.9")
    assert (ncps.header_of(0), ncps.row_of(made, 0)) == (ncps.header(), ncps.row(made))
    none = replace(made, clean_rtt_us=None, repeated_rtt_us=None)
    assert ncps.row_of(none, 1) == "      14  69065.9       0        0"
    assert ncps.row_of(none, 1, unknown="-") == "      14  69065.9       -        -"


def test_unknown_figures_of_a_row_are_numbers_for_the_readers():
    unknown = replace(
        interval(1.0), seconds=0.0, retransmits=None, clean=None, clean_rtt_us=None, repeated=None, repeated_rtt_us=None
    )
    tokens = ncps.row(unknown).split()
    assert [float(token) for token in tokens[5:]] == [0.0] * 9
    assert len(tokens) == 14


@pytest.mark.parametrize("end_ns", [MONOTONIC + S, MONOTONIC + 10 * S])
def test_first_n_connections_are_the_same_n_everywhere(end_ns):
    report = lossy(1000, end_ns=end_ns).report()
    text = printed(report)
    counts = set(re.findall(r"first (\d+) connections", text))
    assert counts == {str(report.in_time.connections)} == {re.search(r"###CPS,.*?(\d+):\d+$", text, re.M)[1]}


def test_only_late_connections_are_none_for_ncps_and_measured_all_the_same():
    text = printed(lossy(1000, record_start_ns=MONOTONIC + S, end_ns=MONOTONIC + S + 1).report())
    assert "!!!NO CONNECTIONS WERE ESTABLISHED!!!" in text
    assert "recorded:11,late:11" in text
    assert "###CONNECT,n:11," in text


def test_new_lines_say_what_ncps_cannot():
    text = printed(lossy(1000, interrupted="SIGTERM", wire={"dropped": None}, attempted=1001).report())
    assert "\n###SOURCE,rtt:wire,retransmits:wire\n" in text
    assert "\n###CAPTURE,interface:lo,level:base,packets:2000,dropped:unknown,matched:1.0000\n" in text
    assert (
        "\n###BOOKS,attempted:1001,established:989,failed:10,unfinished:1,notstarted:0,iofailed:0,recorded:989,late:0\n"
        in text
    )
    assert "\n###RETRANS,syn:12,synrepeats:12,synack:0\n" in text
    assert "\n###INTERRUPTED,SIGTERM\n" in text
    assert re.search(r"\n###PROBLEM,the books do not balance", text)
    assert re.search(r"\n###PATHRTT,n:989,min:20,25:22,Median:24,Mean:24,.*,99.99:29,max:29\n", text)
    assert ",max:2000029\n" in text
    assert "###NOCAPTURE,no right to capture: try as root\n" in printed(unknown_rtt().report())
    assert "###SOURCE,rtt:unknown,retransmits:unknown\n" in printed(unknown_rtt().report())


@pytest.mark.parametrize(("asked", "shown"), [(100.0, "100"), (1e7, "10000000"), (0.5, "0.5"), (1 / 3600, "0.000278")])
def test_a_schedule_has_its_lines_and_readers_take_what_they_took(asked, shown):
    records, handshakes = rows(100)
    plain = printed(finish(records, handshakes).report())
    records["intended_ns"] = records["start_ns"] - 2_000_000
    kept = ScheduleFacts(per_second=asked, due=120, started=100, late=90, held_up=60, lag_ns=2 * S, lag_max_ns=9 * S)
    text = printed(finish(records, handshakes, schedule=kept).report())
    line = re.search(
        r"\n###SCHEDULE,asked:(.*),achieved:.*,due:120,missed:20,late:90,lagmean:.*,lagmax:9000000\n", text
    )
    assert line is not None
    assert line[1] == shown
    assert line.start() > text.index("###REXMIT")
    (response,), (service,) = (
        re.findall(rf"^###{name},n:100,min:(\d+),", text, re.M) for name in ("RESPONSE", "SERVICE")
    )
    assert int(response) - int(service) == 2000
    assert not re.search("###(SCHEDULE|RESPONSE|SERVICE)", plain)
    assert read_metrics(text, 0) == read_metrics(plain, 0)
    assert read_tables(text) == read_tables(plain)


def test_almost_all_is_not_all():
    records, handshakes = rows(100_000, every_ns=100_000)
    text = printed(finish(records, np.delete(handshakes, 7)).report())
    assert ",matched:0.9999\n" in text


def test_a_saved_capture_is_a_file_with_an_offset():
    made = clean(10)
    offset = ClockOffset(3_600_000_005_000, 3_600_000_005_000, 3_600_000_005_000, 10, 0.0, 0)
    made.handshakes["t_syn_first_ns"] += 3600 * S
    made.handshakes["t_synack_ns"] += 3600 * S
    text = printed(made.report(wire=replace(made.run.wire, interface="", file="a,b\nc.pcap", offset=offset)))
    assert "\n###CAPTURE,file:a?b c.pcap,offsetns:3600000005000," in text
    assert ",matched:1.0000\n" in text
    assert "###BEFORESYN" not in text
