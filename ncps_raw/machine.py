"""Edge: asks this machine what a plan is held against: cores, local ports, open files, TIME_WAIT.

Must not judge any of it: ``budget`` does, and takes what is found here as an argument.
"""

from __future__ import annotations

from typing import Final

from ncps_raw import limits, net
from ncps_raw.budget import Machine
from ncps_raw.plan import SECOND, ClientPlan, Plan
from ncps_raw.session import usable_cores

TIME_WAIT_NS: Final = 60 * SECOND
"""Of Linux, where it cannot be changed."""
REUSED_AFTER_NS: Final = SECOND
"""Where net.ipv4.tcp_tw_reuse applies, a port in TIME_WAIT is good for a new connection by then."""


def machine_for(plan: Plan) -> Machine:
    """What this machine has for ``plan``. Names are not resolved: only ``localhost`` is known to be here."""
    ports = net.local_port_range()
    soft, hard = limits.file_limits()
    here = isinstance(plan, ClientPlan) and net.means_loopback(plan.target)
    reused = net.time_wait_reused(here)
    return Machine(
        cores=usable_cores(),
        local_ports=ports,
        reserved_ports=net.reserved_ports(*ports),
        soft_files=soft,
        hard_files=hard,
        time_wait_ns=REUSED_AFTER_NS if reused else TIME_WAIT_NS,
    )
