"""The properties that a commit writes to a snapshot."""

from __future__ import annotations

from headrace.ports import Commit
from headrace_connectors.lakehouse.table_properties import commit_properties


def test_an_unknown_watermark_is_omitted() -> None:
    """A reader would interpret any number as a time."""
    assert commit_properties(Commit(1, "sink", "connect-sink", {}, 0))["headrace.watermark"] == "0"
    assert "headrace.watermark" not in commit_properties(Commit(1, "sink", "connect-sink"))
