"""Vocabulary: the help texts of the link check, ``ncps recv`` and ``ncps send``.

Must not know how options are read. The one idea: both commands have the same words for the same things, so what is
told of one end can be told of the other.
"""

from __future__ import annotations

from typing import Final

_SHARED: Final = """\
  -p, --port PORT          default 5555
  -b, --bind ADDRESS       local address, default: all when listening, any when connecting
  --wait TIME              how long for a peer that does not come; default: for ever when listening, when
                           connecting 10s without trying again
  --idle TIME              give up when nothing has moved for so long, counted from the moment of connecting
  --streams N              connections at once, at most 48, default 1; the bytes are shared out equally beforehand;
                           the same number at both ends, unless --both tells the other one
  --bidirectional          both ways at once; at both ends, unless --both tells the other one
  --both                   of the end that connects: both ends are ncps, show both ends' figures
  --explain                measure each part alone as well, and name the bottleneck; the network alone and the
                           far end only with --both
  --warmup TIME            leave the first TIME out of the figures; of a shorter transfer nothing is left out
  --sndbuf SIZE            send buffer, default: the system's
  --rcvbuf SIZE            receive buffer, default: the system's
  --copy                   plain send and recv, instead of the fastest way this system has
  -i, --interval TIME      a row so often, default 1s; on a terminal a moving line instead, unless given
  --format NAME            text, json or jsonl, default text; of --keep text or jsonl, one report a line
  -q, --quiet              only the report, warnings and errors
  -h, --help               this text
"""

_NOTES: Final = """\
Times: 500ms, 10s, 2m; plain numbers are seconds. Sizes as in dd: k, M, G are 1024, 2^20, 2^30 bytes; kB, MB, GB
are 1000, 10^6, 10^9. Rates (of --limit) in the same units: 10M is 10 * 2^20 bytes/s, 10MB or 10MB/s is 10^7;
100Mbit is 10^8 bits/s. Counts (of --count): 2k is 2000. SIGUSR1 prints the totals so far; the first Ctrl-C ends
and reports what there is, the second leaves at once.

Exit codes: 0 done, 1 the peer never came, was killed or ended early, or whoever read -o - left, 2 command line,
3 this machine (files, address in use), 130 left by a second interrupt.
"""

SEND: Final = f"""\
Send bytes over one TCP connection and say how fast they arrived: dd and netcat in one.

Examples:
  ncps send 10.0.0.5 --bs 1500 --count 1000000    1.5 GB of zeros to ncps recv, or to nc -l there
  ncps send 10.0.0.5                              zeros for 10 seconds
  ncps send 10.0.0.5 --source backup.tar          a file; - is standard input
  ncps send 10.0.0.5 --both --explain             what limits it: source, network, sink or machine
  ncps send --listen --size 1G --source random    to whoever connects: ncps recv HOST, or nc HOST </dev/null

Usage:
  ncps send [HOST] [options]

Options:
  -l, --listen             wait for whoever takes it, instead of connecting to HOST
  --source WHAT            zeros, random (drawn once, beforehand), a file, or - for standard input; default zeros
  --bs SIZE                size of a block: for --count and the report alone, default 1500
  --count N                so many blocks
  --size SIZE              so many bytes
  -t, --duration TIME      so long; default 10s where neither a size nor the source's end ends it
  --limit RATE             at most so fast
  --keep                   go on listening: clients one after another, or at once, a report for each; with a source
                           that is a file each gets all of it
  -o, --output FILE        the report goes there instead of standard output; with --keep one behind the other
{_SHARED}
{_NOTES}"""

RECV: Final = f"""\
Receive bytes over one TCP connection and say how fast they came.

Examples:
  ncps recv                                       listen and discard, for ncps send HOST, or dd | nc HOST 5555
  ncps recv -o copy.tar --fsync                   into a file, until it is on the device
  ncps recv -o - | tar x                          to standard output; the report goes to standard error
  ncps recv 10.0.0.5                              connect and take, from ncps send --listen or nc -l
  ncps recv --keep                                until Ctrl-C, client after client

Usage:
  ncps recv [HOST] [options]

Options:
  -l, --listen             what it does anyway where there is no HOST
  -o, --output FILE        where the bytes go; - is standard output; default: nowhere
  --fsync                  the clock ends when the file is on the device
  --bs SIZE                size of a block: for --count and the report alone, default 1500
  --count N                end after so many blocks; fewer are an error
  --size SIZE              end after so many bytes; fewer are an error
  -t, --duration TIME      end after it, from the first byte
  --source WHAT            of --bidirectional: zeros, random, a file or -; default zeros, as long as the peer sends
  --limit RATE             of --bidirectional: at most so fast
  --keep                   go on listening: clients one after another, or at once, a report for each; not into a
                           file, where the second would write over the first
{_SHARED}
{_NOTES}"""
