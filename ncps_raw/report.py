"""``ncps report``: views of a run saved with ``--run``, also joined with a capture made elsewhere.

The one idea: a saved run is the very thing a report is made of when a run ends, so the same functions make it again,
byte for byte. Nothing here counts or renders.
"""

from __future__ import annotations

from ncps_analysis.runfile import load_run
from ncps_analysis.summary import build_report

from ncps_raw.output import Output
from ncps_raw.session import scratch_folder


def run_report(path: str, *, format_: str, output: str | None, pcap: str | None, quiet: bool) -> int:
    """Show the run in ``path``; the exit code. Raises NcpsError for files that cannot be read or written."""
    with scratch_folder() as folder:
        run = load_run(path, folder)
        report = build_report(run, folder)
        with Output(format_, output, silent_rows=quiet, quiet=quiet) as out:
            for interval in run.intervals:
                out.row(interval)
            out.report(report)
    return 0
