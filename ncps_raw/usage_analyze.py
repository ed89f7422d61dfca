"""Vocabulary: the help texts of captures: ``ncps analyze`` and ``ncps capture``.

Must not know how options are read. The one idea: both commands end in the same report, so what it can be and where it
goes has the same words.
"""

from __future__ import annotations

from typing import Final

_REPORT: Final = """\
  --format NAME            text, json, jsonl, csv, or ncps (as NCPS prints a run), default text
  -o, --output FILE        results go there instead of standard output
  --by WHAT                a table by client, server, port or minute as well
  --top N                  so many of the most repeated and of the slowest handshakes, default 5
  --dup-window TIME        equal packets closer than this are copies made by the capture, default 5ms, 0 = none
"""

ANALYZE: Final = f"""\
Say what became of every TCP handshake in saved captures: pcap or pcapng, compressed or not, from any program.

Examples:
  ncps analyze prod.pcapng
  ncps analyze ring1.pcap.gz ring2.pcap.gz       parts of one capture, or of two places, in order of time
  ncps analyze a.pcap --by server --top 20
  ncps analyze a.pcap --host 10.1.0.0/16 --port 443 --state unanswered,refused
  ncps analyze a.pcap --connections --format csv -o attempts.csv
  ssh host tcpdump -w - tcp | ncps analyze -
  ncps analyze far.pcap --run r.ncps             join a saved run with a capture made elsewhere

Usage:
  ncps analyze FILE... [options]

Options:
{_REPORT}\
  --connections            one record an attempt, as jsonl (default) or csv, with file and frame number
  --vlan-key               the same ends in two VLANs are two attempts; default: copies of one
  --host ADDRESSES         only attempts with one of these addresses or networks at either end
  --port PORTS             only with one of these ports, 443 or 443,8000-8100, at either end
  --state NAMES            only answered, refused, icmp_refused, unanswered or simultaneous ones
  --from TIME              only those that began then or later: 2026-05-04T10:20:30.5Z, or seconds after the first
                           packet
  --to TIME                only those that began before
  --run FILE               the run saved there, with the handshakes of these captures
  -q, --quiet              only results, warnings and errors
  -h, --help               this text

FILE is - for standard input. A damaged file counts up to its damage, an interrupted reading up to there: a warning.
Exit codes: 0 done, 1 the reader of the results left, 2 command line, 3 nothing could be read, or results not
written, 130 left by a second interrupt (with --run by the first).
"""

CAPTURE: Final = f"""\
Capture TCP handshakes on this machine, say what became of them, save their packets.

Examples:
  ncps capture -i eth0 -t 1m
  ncps capture -p 443,8000-8100 -w day.pcapng    until Ctrl-C; headers only
  ncps capture -i lo -w all.pcap --whole --filter 'tcp port 9800'
  ncps capture -t 10s --format json -o r.json

Usage:
  ncps capture [options]

Options:
  -i, --interface NAME     default: any where there is such a thing (Linux)
  -p, --port PORTS         only these ports at either end: 443 or 443,8000-8100
  -t, --duration TIME      stop after it; default: at Ctrl-C
  --level LEVEL            what it looks at besides SYNs: base (refusals), resets (all RSTs) or acks (RSTs and bare
                           ACKs, which tell where the capture stands); default acks
  --filter TEXT            this filter (BPF) instead of ours; what it leaves out is not seen, and not told
  --buffer SIZE            kernel buffer, default 64M
  -w, --write FILE         save the packets; pcapng if FILE ends in .pcapng, else pcap
  --file-format NAME       pcap or pcapng, whatever the name
  --whole                  save whole packets, default: their first 160 bytes
{_REPORT}\
  -q, --quiet              no row each second and no remarks
  -h, --help               this text

Ctrl-C ends it with the report; ncps analyze FILE makes the same one again.
Exit codes: 0 done, 1 the reader of the results left, 2 command line, 3 cannot capture here, or packets or results
not written, 130 left by a second interrupt.
"""
