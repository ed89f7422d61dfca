"""Our options: each sets a field that exists, and what some of them imply."""

import pytest
from ncps_capture.errors import UsageError

from ncps_raw.options import CLIENT_FIELDS, OPTIONS, SERVER_FIELDS, Option, build, long_name, word
from ncps_raw.plan import ClientPlan, ServerPlan


def test_every_option_sets_a_field_of_the_plan() -> None:
    assert {option.field for option in OPTIONS.values()} <= CLIENT_FIELDS | SERVER_FIELDS
    assert {"reuse_port"} == SERVER_FIELDS - CLIENT_FIELDS
    assert {"target", "connections", "hold_ns", "local_port"} <= CLIENT_FIELDS - SERVER_FIELDS


def test_every_choice_of_the_person_has_an_option() -> None:
    not_typed = {"target", "command_line", "dialect", "silent_rows", "affinity_nonrss"}
    assert {option.field for option in OPTIONS.values()} == (CLIENT_FIELDS | SERVER_FIELDS) - not_typed


@pytest.mark.parametrize(
    ("option", "name"),
    [
        (Option("base_port", word), "--port"),
        (Option("hold_ns", word), "--hold"),
        (Option("close", value="rst"), "--close"),
        (Option("shutdown"), "--shutdown"),
        (Option("shutdown", value=False), None),
        (Option("target", word), None),
    ],
)
def test_long_name(option: Option, name: str | None) -> None:
    assert long_name(option) == name


def test_build_makes_the_plan_of_the_role() -> None:
    assert build("client", {"target": "h"}) == ClientPlan(target="h")
    assert build("server", {}) == ServerPlan()


@pytest.mark.parametrize("given", [{"write": "x.pcap"}, {"interface": "lo"}])
def test_who_names_a_place_for_packets_wants_them(given: dict[str, str]) -> None:
    assert build("server", dict(given)).capture == "required"
    assert build("client", {"target": "h", **given}).capture == "required"
    with pytest.raises(UsageError, match="needs the capture"):
        build("server", {**given, "capture": "off"})


def test_quiet_is_without_rows() -> None:
    assert build("server", {"quiet": True}).silent_rows
    assert not build("server", {}).silent_rows


def test_a_share_becomes_the_nearest_float() -> None:
    option = OPTIONS["--max-failed"]
    assert option.read is not None
    assert option.read("0.1%", "--max-failed") == 0.001


def test_processors_are_a_list_or_those_without_network_interrupts() -> None:
    read = OPTIONS["--affinity"].read
    assert read is not None
    listed, found = (build("server", {"affinity": read(text, "--affinity")}) for text in ("0,2", "nonrss"))
    assert (listed.affinity, listed.affinity_nonrss) == ((0, 2), False)
    assert (found.affinity, found.affinity_nonrss) == ((), True)
