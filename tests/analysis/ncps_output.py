"""What NCPS itself prints, and a whole output of ours, for the tests that compare the two."""

from ncps_analysis.render import ncps

NCPS_ITSELF = """\
   T(sec)        N   Pend   Failed   IOFail   Conn/s  Close/s RXkbyte/s TXkbyte/s  RT/i    c0/i c0rtt/i    cR/i  cRrtt/i\x20
    1.002        7   1593        0        0  69065.9  69058.9   69062.9   69065.9     0   69204   12888       0        0\x20
    2.002       14   1586        0        0  69987.0  69980.0   69978.0   69984.0   606   69381   12962     606   161224 REP

=== CMDLINE: ./ncps2 -c 10.1.0.5 -wt 5 -t 15

=== VERSION 1.5

###RXGBPS 0.45
###TXGBPS 0.45

=== Time (ms) to Nth connection establishment for first 556947 connections:
===       N   T(ms)     CPS
===  100000    1678   59594
===  556947   10002   55683

###ENDCPS 55683

###CPS,100000:1678,556947:10002

=== SYN RTT (us) stats for first 556947 connections:
===      P25   Median     Mean      P75      P90      P95      P99    P99.9   P99.99
===     2342     4441    15996    13249    24443    38198    79657  1038000  1057000

###SYNRTT,25:2342,Median:4441,Mean:15996,75:13249,90:24443,95:38198,99:79657,99.9:1038000,99.99:1057000

=== Percentage of connections with retransmits in the first 556947 connections: 1.7278%
=== Average retransmit count per connection (excluding 0-retransmit cases): 1.0138

###REXMIT,rtconnpercentage:1.7278,rtperconn:1.0138
"""  # noqa: E501 - as it is printed


def printed(report, intervals=()) -> str:
    lines = [ncps.header(), *(ncps.row(row) for row in intervals)] if intervals else []
    return "\n".join([*lines, ncps.report(report)]) + "\n"
