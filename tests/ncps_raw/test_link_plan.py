"""The link check's plan: what is typed, what it means, what cannot be meant."""

from typing import Any

import pytest
from ncps_capture.errors import UsageError

from ncps_raw.link.plan import DEFAULT_DURATION_NS, LinkPlan, build, byte_rate
from ncps_raw.units import SECOND


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1000", 1000),
        ("10M", 10 << 20),
        ("10MB/s", 10_000_000),
        ("100Mbit", 12_500_000),
        ("100Mbit/s", 12_500_000),
        ("1.5Gbit/s", 187_500_000),
        ("8bit", 1),
        ("64kbps", 8000),
    ],
)
def test_rates(text: str, rate: int) -> None:
    assert byte_rate(text, "--limit") == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "fast", "7bit", "Mbit", "1/0Mbit", "10M/h"])
def test_rates_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(UsageError, match="--limit must be"):
        byte_rate(text, "--limit")


def test_dd_s_words_make_a_size() -> None:
    plan = build("send", {"HOST": "h", "--bs": "1500", "--count": "1000000"})
    assert (plan.size, plan.block, plan.port, plan.lasts_ns) == (1_500_000_000, 1500, 5555, None)
    assert build("send", {"HOST": "h", "--count": "2k"}).size == 2000 * 1500


def test_what_would_never_end_ends_after_ten_seconds() -> None:
    assert LinkPlan(sends=True, host="h").lasts_ns == DEFAULT_DURATION_NS
    assert LinkPlan(sends=True, host="h", warmup_ns=SECOND).lasts_ns == DEFAULT_DURATION_NS + SECOND
    assert LinkPlan(sends=True, host="h", size=1).lasts_ns is None
    assert LinkPlan(sends=True, host="h", source="file").lasts_ns is None
    assert LinkPlan(sends=False).lasts_ns is None


def test_output_is_data_for_recv_and_the_report_for_send() -> None:
    assert build("recv", {"--output": "x"}).sink == "x"
    sending = build("send", {"HOST": "h", "--output": "x"})
    assert (sending.sink, sending.results) == (None, "x")


def test_what_recv_sends_is_of_both_ways() -> None:
    assert build("recv", {"--source": "zeros", "--bidirectional": True}).transmits


def test_an_interval_that_was_asked_for_is_shown() -> None:
    assert build("recv", {"--interval": "500ms"}).rows
    assert not build("recv", {}).rows


@pytest.mark.parametrize(
    ("command", "values", "message"),
    [
        ("send", {}, "HOST is missing"),
        ("send", {"HOST": "h", "--listen": True}, "contradict"),
        ("send", {"HOST": "h", "--size": "1", "--count": "1"}, "twice"),
        ("send", {"HOST": "h", "--size": "0"}, "at least 1"),
        ("send", {"HOST": "h", "--bs": "0"}, "--bs"),
        ("send", {"HOST": "h", "--streams": "0"}, "--streams"),
        ("send", {"HOST": "h", "--streams": "2", "--source": "f"}, "split"),
        ("send", {"HOST": "h", "--keep": True}, "--keep"),
        ("send", {"HOST": "h", "--port": "65536"}, "--port"),
        ("send", {"HOST": "h", "--format": "xml"}, "--format"),
        ("send", {"HOST": "h", "--duration": "1s", "--warmup": "1s"}, "--warmup"),
        ("send", {"HOST": "h", "--interval": "0"}, "--interval"),
        ("send", {"HOST": "h", "--bind": "10.0.0.1,10.0.0.2"}, "one address"),
        ("recv", {"--streams": "2", "--output": "f"}, "one file"),
        ("recv", {"--keep": True, "--output": "f"}, "would write over"),
        ("send", {"--listen": True, "--keep": True, "--source": "-"}, "standard input"),
        ("recv", {"--keep": True, "--format": "json"}, "use --format jsonl, one in each line"),
        ("send", {"--listen": True, "--keep": True, "--format": "json"}, "use --format jsonl"),
        ("recv", {"--both": True}, "--both"),
        ("recv", {"--fsync": True}, "--fsync"),
        ("recv", {"--source": "random"}, "--bidirectional"),
        ("recv", {"--limit": "1M"}, "--bidirectional"),
        ("recv", {"--source": "zeros"}, "recv sends only with --bidirectional"),
        ("recv", {"--output": ""}, "--output is empty: name a file, or - for standard output, or leave it out"),
        ("send", {"HOST": "h", "--output": " "}, "--output is empty"),
        ("send", {"HOST": "h", "--source": ""}, "--source is empty: name zeros, random, a file, or -"),
        ("recv", {"--format": ""}, "--format is empty: name text, json or jsonl, or leave it out"),
        ("recv", {"--port": "http"}, "--port must be a port number, 1 to 65535, not 'http'"),
        ("recv", {"--port": ""}, "--port must be a port number, 1 to 65535, not ''"),
    ],
)
def test_what_cannot_be_meant(command: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(command, values)


@pytest.mark.parametrize(
    ("host", "right"),
    [
        ("10.0.0.5:5555", "ncps send 10.0.0.5 -p 5555"),
        ("box.example:80", "ncps send box.example -p 80"),
        ("[::1]:5555", "ncps send ::1 -p 5555"),
        ("[fe80::1%eth0]", "ncps send fe80::1%eth0"),
        (":5555", "ncps send HOST -p 5555"),
        ("box:", "ncps send box"),
        ("", "HOST is empty: ncps send HOST to connect, ncps send --listen to listen"),
        (" ", "HOST is empty"),
        ("http://box/", "such as 10.0.0.5"),
        ("1.2.3", "whole IP address"),
    ],
)
def test_a_host_that_was_written_as_elsewhere(host: str, right: str) -> None:
    with pytest.raises(UsageError) as caught:
        build("send", {"HOST": host})
    assert right in str(caught.value)


@pytest.mark.parametrize("host", ["10.0.0.5", "box", "box.example", "::1", "fe80::1%eth0", "2001:db8::5555"])
def test_a_host_that_is_one(host: str) -> None:
    assert build("send", {"HOST": host}).host == host


def test_an_empty_host_of_recv_is_told_that_it_listens_without() -> None:
    with pytest.raises(UsageError, match="HOST is empty: ncps recv HOST to connect, ncps recv to listen"):
        build("recv", {"HOST": ""})
    assert build("recv", {"--listen": True}).listens
    with pytest.raises(UsageError, match="contradict"):
        build("recv", {"HOST": "h", "--listen": True})


@pytest.mark.parametrize("suffix", ["", "k", "kB", "M", "MB", "MiB", "G", "GB"])
def test_a_letter_is_the_same_in_every_option(suffix: str) -> None:
    plan = build("send", {"HOST": "h", "--limit": f"3{suffix}", "--size": f"3{suffix}"})
    assert plan.limit == plan.size
    if suffix != "G":
        assert build("send", {"HOST": "h", "--bs": f"3{suffix}"}).block == plan.size


@pytest.mark.parametrize("option", ["--sndbuf", "--rcvbuf"])
@pytest.mark.parametrize("size", ["99999999999999", "2G"])
def test_a_buffer_that_no_socket_takes_is_refused(option: str, size: str) -> None:
    with pytest.raises(UsageError, match=f"{option} must be 1 to 2147483647 bytes"):
        build("send", {"HOST": "127.0.0.1", option: size})
