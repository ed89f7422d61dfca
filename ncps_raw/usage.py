"""Vocabulary: the help texts. docopt reads the command lines of all commands from them.

Must not know how options are read. The one idea: a text is the only place that says which options a command has,
so that help and behaviour cannot differ. Examples come first: that is what people look for.
"""

from __future__ import annotations

from typing import Final

from ncps_raw.usage_analyze import ANALYZE, CAPTURE
from ncps_raw.usage_link import RECV, SEND

TOP: Final = """\
ncps - make TCP connections at a high rate and measure each handshake on the wire

Examples:
  ncps demo                            see it work, here, in a few seconds
  ncps server                          accept connections on ports 10001 to 10016
  ncps client 10.0.0.5 -t 30s          connect to that server for 30 seconds

Commands:
  ncps server [options]                accept connections and echo what arrives
  ncps client HOST [options]           make connections, measure SYN-RTT and retransmits
  ncps recv [options]                  take bytes over one connection and say how fast they came
  ncps send HOST [options]             send bytes and say how fast they arrived: dd and netcat in one
  ncps demo                            server, client and capture on this machine
  ncps capture [options]               capture handshakes here, report them, save their packets
  ncps analyze FILE... [options]       what became of every handshake in saved captures
  ncps report RUN [options]            the report of a saved run again, or joined with a capture

NCPS's own command lines are understood:
  ncps -s [flags]                      as ncps server
  ncps -c HOST [flags]                 as ncps client; prints what NCPS prints

  ncps COMMAND --help                  options and examples of a command
  ncps -c --help                       NCPS's flags
  ncps --version
"""

_EXIT_CODES: Final = """\
Exit codes: 0 done, 1 more failed than --max-failed allows, 2 command line, 3 this machine (rights, limits,
missing libpcap, address in use), 130 left by a second interrupt. The first Ctrl-C stops the load and reports.
"""

_VALUES: Final = """\
Times: 500ms, 10s, 2m, 1h, plain numbers are seconds. Counts: 100, 10k, 1.5M. Sizes as in dd: 1000, 4k, 4kB, 1M.
"""

_SHARED: Final = """\
  -r, --threads N          connection loops, default 16
  --processes N            processes that share the loops, default one for each core
  --size SIZE              bytes of a send, and at most of a receive, default 1000
  --close KIND             fin or rst, default {close}
  --shutdown               before closing end the sending side alone (FIN), so that the peer sees an end
  --keepalive TIME         TCP keep-alive after so many idle seconds: a probe a second, 10 of them; default off
  --delay TIME             wait before starting anything
  --affinity LIST          pin loops to processors: 0,2,4-7, loop by loop; or nonrss: to those that serve no
                           network interrupts, found once connections come fast
  --busy-poll              look for events without waiting while connections are open
  --brief                  short rows: open connections, connections per second, SYN-RTT
  --engine NAME            selector
  --capture                measure on the wire, or fail with exit code 3
  --no-capture             do not capture: round trips as the kernel estimates them
  --interface NAME         capture there instead of where the route leads; implies --capture
  -w, --write FILE         save the captured packets, as pcap; implies --capture
  --capture-level LEVEL    what it looks at besides SYNs: base (refusals), resets (all RSTs) or acks (RSTs and
                           bare ACKs); default {level}; implies --capture
  --capture-buffer SIZE    kernel buffer of the capture, default 64M
  --format NAME            text, ncps, json or jsonl, default text
  -o, --output FILE        results go there instead of standard output
  --run FILE               save the run as well: ncps report makes the report again, in any format
  -q, --quiet              no rows and no remarks: only the report, warnings and errors
  --max-failed SHARE       exit with 1 if more of the attempts failed, as 0.5% or 0.005, default: if all did
  --dry-run                show the plan as understood, start nothing
  -h, --help               this text
"""

CLIENT: Final = f"""\
Make TCP connections to HOST and measure each handshake.

Examples:
  ncps client 10.0.0.5                               until Ctrl-C, 1600 connections at a time
  ncps client 10.0.0.5 -t 5m --warmup 30s            report without the first 30 seconds
  ncps client 10.0.0.5 -N 10k -P 500 --hold 10s      10,000 open connections, 500 connecting at most
  ncps client 10.0.0.5 -t 10s --format json -o r.json
  ncps client 10.0.0.5 -t 5m --run r.ncps            save the run, for ncps report r.ncps
  ncps client ::1 --local-port 20000 --local-ports 8k --cross-connect
                                                     8000 local ports times 16 server ports

Usage:
  ncps client HOST [options]

Options:
  -t, --duration TIME      stop after it, warm-up included; default: at Ctrl-C
  --warmup TIME            leave out of the report what happens before, default 0
  -i, --interval TIME      between two rows, default 1s
  -p, --port PORT          first server port, default 10001
  --ports N                number of server ports, default one for each loop
  -N, --connections N      connections to keep open, in all, default 100 for each loop
  -P, --pending N          at most so many connecting at once, default all
  -M, --mode MODE          0: connect and close. 1: send, receive once, close. p: ping-pong. s: send all the time,
                           to a server with -M r. r: receive all the time, from one with -M s. Default 1
  --hold TIME              life of a connection, default 0: one exchange
  --pace TIME              between two rounds of --mode p, default 0
  --rate RATE              connects a second on a schedule, whatever the answers: 750/s, 10k, 0.5; default: as fast
                           as it goes
  --no-reconnect           do not replace connections that were closed
  -b, --bind ADDRESSES     local addresses, used in turn: 10.0.0.1,10.0.0.8-12,10.1.0.0/24,fe80::1%eth0
  --local-port PORT        first local port, default: the kernel chooses
  --local-ports N          number of local ports, shared out to the loops
  --cross-connect          each loop uses all server ports instead of one
{_SHARED.format(close="fin", level="base")}
{_VALUES}
{_EXIT_CODES}"""

SERVER: Final = f"""\
Accept TCP connections and echo what arrives.

Examples:
  ncps server                               ports 10001 to 10016, until Ctrl-C
  ncps server -p 9800 --ports 32 -r 16      32 ports for 16 loops
  ncps server -b ::                         IPv6
  ncps server -t 5m --interface eth0 --format json -o server.json

Usage:
  ncps server [options]

Options:
  -t, --duration TIME      stop after it, warm-up included; default: at Ctrl-C
  --warmup TIME            leave out of the report what happens before, default 0
  -i, --interval TIME      between two rows, default 1s
  -b, --bind ADDRESSES     local addresses, default all of IPv4
  -p, --port PORT          first port, default 10001
  --ports N                number of ports, default one for each loop
  -M, --mode MODE          echo: send back what arrives. s: send all the time. r: receive alone. Default echo
  --reuse-port             every loop listens on every port, and the kernel shares out the connections
{_SHARED.format(close="rst, so that neither side keeps TIME_WAIT", level="acks")}
{_VALUES}
{_EXIT_CODES}"""

DEMO: Final = """\
Run a server, a client and a capture on this machine and show what they measure.

Examples:
  ncps demo
  ncps demo -t 10s

Usage:
  ncps demo [options]

Options:
  -t, --duration TIME      length of the part on loopback, default 3s
  -h, --help               this text

First on loopback. Then, where network namespaces may be made (Linux, root, iproute2), for about 5 seconds over a
path of 10 ms each way that loses every 50th first SYN: what the wire shows of that, and what the kernel says.
"""

REPORT: Final = """\
Show a run that was saved with --run: the same report, in any format; or join it with a capture made elsewhere.

Examples:
  ncps report r.ncps
  ncps report r.ncps --format json -o r.json
  ncps report r.ncps --pcap lo.pcap              measure its handshakes in a capture by tcpdump

Usage:
  ncps report RUN [options]

Options:
  --pcap FILE              handshakes from this capture, by its own clock, instead of those the run captured:
                           pcap or pcapng, compressed or not
  --format NAME            text, ncps, json or jsonl, default text
  -o, --output FILE        results go there instead of standard output
  -q, --quiet              no rows and no remarks: only the report, warnings and errors
  -h, --help               this text

A capture of another host has another clock: the difference is estimated from the connections themselves and
reported with its spread, and what would need one clock (the client's own overheads) is left unknown.

Exit codes: 0 done, 2 command line, 3 a file cannot be read or written.
"""

NCPS: Final = """\
NCPS's own command line: prints what NCPS prints, so that programs which read NCPS read this.

Examples:
  ncps -s
  ncps -c 10.0.0.5 -wt 30 -t 330
  ncps -c 10.0.0.5 -r 16 -bp 9800 -np 16 -N 1600 -P 1600 -D 0 -M 1 -i 1 -wt 5 -t 60
  ncps -c 10.0.0.5 -t 5 --no-capture

Flags of both:
  -s | -c HOST             server or client: the first argument
  -r N                     threads, default 16
  -b ADDRESS               local address
  -bp PORT  -np N          first server port, default 10001, and number of them, default one for each thread
  -t S  -wt S  -i S        duration, warm-up, interval, in seconds; decimals allowed
  -ds S                    delay before anything starts, seconds
  -len BYTES               size of a send, default 1000
  -abortiveclose           close with RST, the server's default
  -normalclose             close with FIN, the client's default
  -disconbc                end the sending side before closing
  -nodisconbc              close alone, the default
  -tka S                   TCP keep-alive after so many idle seconds, default off
  -aff LIST|nonrss         pin threads to processors: 0,2,3, or to those without network interrupts
  -poll                    look for events without waiting
  -sil                     no periodic rows
  -brief                   short rows
  -o FILE                  results go there
Flags of the client:
  -N N  -P N               connections to keep open, default 100 for each thread; at most so many connecting
  -D MS                    life of a connection, milliseconds
  -M 0|1|p|s|r             0: connect and close, 1: send, receive once, close, p: ping-pong, s: send, r: receive
  -k S                     seconds between the rounds of -M p, default 0
  -bcp PORT  -ncp N        first local port and number of them
  -xconnect                each thread uses all server ports
  -dnrc                    do not reconnect
Flags of the server:
  -M s|r                   send or receive all the time, default: echo
  -rup                     every thread listens on every port

Our options are understood beside them: see ncps client --help and ncps server --help.
Exit codes: 0 done, 255 command line, 3 this machine.
"""

COMMANDS: Final = {
    "server": SERVER,
    "client": CLIENT,
    "recv": RECV,
    "send": SEND,
    "demo": DEMO,
    "capture": CAPTURE,
    "analyze": ANALYZE,
    "report": REPORT,
}
POSITIONALS: Final = {
    "server": (),
    "client": ("HOST",),
    "recv": ("[HOST]",),
    "send": ("[HOST]",),
    "demo": (),
    "capture": (),
    "analyze": ("FILE...",),
    "report": ("RUN",),
}
