"""Side-by-side runs against other programs: ``make bench``. Ratios of medians from alternating runs on one machine.

Absolute figures of a noisy machine say little, so every comparison alternates its contenders in one run and reports
ratios. A peer that is not here is named, not skipped in silence. ``NCPS_PEER=/path/to/ncps`` points at the C NCPS.
Rounds and seconds: ``make bench ARGS='--rounds 7 --seconds 4'``; ``ARGS=connections`` runs one suite only.
"""

import sys

import analyze
import connections
import link
import scaling
from contest import Settings, could_not_run

SUITES = {"connections": connections.suite, "link": link.suite, "analyze": analyze.suite, "scaling": scaling.suite}


def main(argv: list[str]) -> int:
    settings = Settings.from_arguments(argv, list(SUITES))
    for name in settings.suites or list(SUITES):
        print(f"== {name}: {settings.rounds} alternating rounds of {settings.seconds} s, medians\n")
        SUITES[name](settings)
    if could_not_run:
        print("could not run:")
        for line in could_not_run:
            print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
