"""A path of known rate without bursts: both ends' figures are those of the path, not of a buffer."""

import json
import subprocess
from typing import Any

import pytest
from running import NCPS

from ncps_raw.lab.lab import Lab
from ncps_raw.lab.network import Network, Way

RATE = 1_250_000
DELAY_NS = 10_000_000
PAYLOAD = 1448 / 1500
"""Of a full packet with time stamps, headers of IP and TCP taken off: the path counts packets."""
TRIPS = 55


@pytest.mark.namespaces
@pytest.mark.parametrize("who_listens", ["recv", "send"])
def test_the_figure_is_the_path_s_also_where_all_fits_into_the_buffers(who_listens: str) -> None:
    size = int(RATE * PAYLOAD * TRIPS * 2 * DELAY_NS / 1e9)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Lab(Network(Way(DELAY_NS, rate=RATE), Way(DELAY_NS))) as lab:
        send = [NCPS, "send", "--size", str(size), "--format", "json"]
        recv = [NCPS, "recv", "--format", "json"]
        if who_listens == "recv":
            listener = lab.b.run([*recv, "-b", lab.b.ipv4], **pipes)
            assert "listening" in listener.stderr.readline()
            client = lab.a.run([*send, lab.b.ipv4], **pipes)
            receiver, sender = listener, client
        else:
            listener = lab.a.run([*send, "--listen", "-b", lab.a.ipv4], **pipes)
            assert "listening" in listener.stderr.readline()
            client = lab.b.run([*recv, lab.a.ipv4], **pipes)
            receiver, sender = client, listener
        sent, received = (json.loads(process.communicate(timeout=60)[0]) for process in (sender, receiver))
        counters = lab.relay.counters()
    assert sent["bytes"] == received["bytes"] == size
    assert counters.get("queue_full.data", 0) == 0
    for report in (sent, received):
        assert report["bytes_per_s"] == pytest.approx(RATE * PAYLOAD, rel=0.02)
    # What dd would have said: the buffers took all long before it had passed.
    assert sent["sender_handed_over_s"] < 0.9 * sent["seconds"]
