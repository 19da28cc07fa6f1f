"""LOBs of Oracle that a change omits, in the constructed recordings (``reselect.md`` section 2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from recordings.comparison import compared_tables, records_of, rows_of
from recordings.records import ORACLE, Variant, variant
from recordings.replay import Chunk, Replay

from headrace.core.model.unavailable import Placeholder


def _row(of: Variant, size: int) -> Mapping[str, Any]:
    """The row of which every LOB was omitted by some change, after batches of ``size`` records."""
    (table,) = compared_tables(of)
    replay, records = Replay(of, table), records_of(table, of)
    replay.deliver([Chunk(records[begin : begin + size]) for begin in range(0, len(records), size)])
    replay.finish()
    return rows_of(replay.content(), ("ID",))["[1]"]


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("name", ORACLE)
def test_a_null_counts_only_where_lobs_are_read(name: str, size: int) -> None:
    """With lob.enabled a null of a LOB is a value; without it every change has a null, and the stored value stays."""
    of = variant(name)
    assert _row(of, size)["DOC"] is None
    assert _row(replace(of, lob_enabled=False), size)["DOC"] == "new clob"


@pytest.mark.parametrize("name", ORACLE)
def test_every_binary_mode_has_a_placeholder_that_is_found(name: str) -> None:
    """Bytes, base64 of both kinds, hex: no placeholder is written, and the value of the snapshot stays."""
    of = variant(name)
    row = _row(of, 1)
    assert not any(Placeholder().is_form(cell) for cell in row.values())
    assert row["PIC"] in (b"\x01\x02\x03", "AQID", "010203")
    assert row["XDOC"] == "<a/>"
