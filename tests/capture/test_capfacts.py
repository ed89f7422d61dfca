"""What is known of a capture before anything is: nothing, which is not zero losses."""

from ncps_capture.capfacts import Facts


def test_losses_are_unknown_until_something_is_said_of_them() -> None:
    facts = Facts("x.pcap", 3)
    assert (facts.drops, facts.damaged, facts.packets, facts.warnings) == (None, None, 0, [])


def test_a_warning_names_the_file() -> None:
    facts = Facts("x.pcap", 0)
    facts.warn("it is odd")
    assert facts.warnings == ["x.pcap: it is odd"]
