"""Gates of the markers: a test that needs rights or files it has not got says so and is counted as skipped.

As root nothing may be skipped for want of rights: there a gap is a fault of the machine, and the test fails.
"""

import os
import shutil
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest


@cache
def missing_for_capture() -> str | None:
    try:
        import pcapy
    except ImportError as why:
        return f"pcapy-ng cannot be imported: {why}"
    if not hasattr(socket, "AF_PACKET"):
        return None if pcapy.findalldevs() else "no interface can be opened for capture"
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError as why:
        return f"no right to capture: {why.strerror}; run as root or with CAP_NET_RAW"
    return None


@cache
def missing_for_namespaces() -> str | None:
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no right to make network namespaces: {done.stderr.strip()}"


@cache
def missing_for_truth() -> str | None:
    folder = os.environ.get("NCPS_TRUTH_PCAPS")
    if not folder:
        return "NCPS_TRUTH_PCAPS is not set: captures whose truth is known are not at hand"
    return None if (Path(folder) / "truth.jsonl").is_file() else f"{folder} has no truth.jsonl"


GATES = {"capture": missing_for_capture, "namespaces": missing_for_namespaces, "truth": missing_for_truth}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, missing in GATES.items():
        if item.get_closest_marker(name) is None or (reason := missing()) is None:
            continue
        # A folder of captures is not a right: without the variable root has not got it either.
        if name != "truth" and hasattr(os, "geteuid") and os.geteuid() == 0:
            pytest.fail(f"{name}: {reason}", pytrace=False)
        pytest.skip(f"{name}: {reason}")


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session")
def ncps() -> str:
    """The installed console script."""
    script = Path(sys.executable).with_name("ncps")
    assert script.exists(), f"{script} is not installed: pip install -e ."
    return str(script)
