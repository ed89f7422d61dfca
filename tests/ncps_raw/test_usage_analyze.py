"""The help texts of captures."""

from ncps_raw import usage, usage_analyze


def test_both_commands_have_their_text_and_share_the_report() -> None:
    assert usage.COMMANDS["analyze"] is usage_analyze.ANALYZE
    assert usage.COMMANDS["capture"] is usage_analyze.CAPTURE
    for option in ("--format", "--output", "--by", "--top", "--dup-window", "--quiet", "--help"):
        assert option in usage_analyze.ANALYZE
        assert option in usage_analyze.CAPTURE
