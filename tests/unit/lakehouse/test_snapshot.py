"""What a commit says about itself."""

from __future__ import annotations

from headrace.ports import Commit
from headrace_connectors.lakehouse.snapshot import commit_properties


def test_a_watermark_that_is_not_known_is_left_out() -> None:
    """A reader would take any number for a time."""
    assert commit_properties(Commit(1, "sink", "connect-sink", {}, 0))["headrace.watermark"] == "0"
    assert "headrace.watermark" not in commit_properties(Commit(1, "sink", "connect-sink"))
