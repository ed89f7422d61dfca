"""``--capture-level``: what it implies, what it defaults to, and that it reaches the capture."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ncps_capture.errors import UsageError
from ncps_capture.filter import LEVELS

from ncps_raw import client, net, server
from ncps_raw.options import build
from ncps_raw.plan import ClientPlan, ServerPlan


def test_a_server_looks_for_acks_and_a_client_does_not() -> None:
    assert ClientPlan(target="127.0.0.1").admitted == "base"
    assert ServerPlan().admitted == "acks"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("role", ["client", "server"])
def test_who_names_a_level_wants_the_capture(role: str, level: str) -> None:
    target = {"target": "127.0.0.1"} if role == "client" else {}
    plan = build(role, {"capture_level": level, **target})
    assert (plan.admitted, plan.capture) == (level, "required")
    assert replace(plan, threads=1).admitted == level


def test_a_plan_without_a_capture_can_be_changed() -> None:
    assert replace(ServerPlan(), ports=20).admitted == "acks"


def test_a_level_needs_a_capture() -> None:
    with pytest.raises(UsageError, match="--capture-level needs the capture, which --no-capture switches off"):
        build("client", {"target": "127.0.0.1", "capture": "off", "capture_level": "acks"})


def test_an_unknown_level() -> None:
    with pytest.raises(UsageError, match="--capture-level must be base or resets or acks, not all"):
        ClientPlan(target="127.0.0.1", capture_level="all")


def test_it_reaches_the_capture() -> None:
    plan = ClientPlan(target="127.0.0.1", capture_level="resets")
    spec, _ = client.capture_spec(plan, net.resolve("127.0.0.1", ()))
    assert spec is not None
    assert spec.level == "resets"
    served = server.prepare(ServerPlan(bind=("127.0.0.1",), capture="required")).capture
    assert served is not None
    assert served.level == "acks"
