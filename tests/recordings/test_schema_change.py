"""The recorded table that was altered during the recording: allowed changes are applied, others fail the task.

``ddl_t`` gets columns with and without defaults, loses, renames and re-adds columns, and its integers, key included,
become wider. Then a column's type changes to one that cannot contain the old values (``merge.md`` section 8).
"""

from __future__ import annotations

import pytest
from recordings.canonical import plain, without_nulls
from recordings.comparison import records_of, row_key, rows_of
from recordings.images import last_images
from recordings.records import VARIANTS, dump, variant
from recordings.replay import Chunk, Replay

from headrace.core.model.errors import Fatal
from headrace.core.model.unavailable import Placeholder

RESCALED = ("DECIMAL(10, 2)", "DECIMAL(12, 4)")
STOPS = dict.fromkeys(VARIANTS, RESCALED) | {
    # As double or text a decimal has no scale that could change; the next such column went from int to text.
    "c1": ("INT", "STRING"),
    "c2": ("INT", "STRING"),
    "b": ("BIGINT", "STRING"),
}


@pytest.mark.parametrize(("name", "size"), [(n, s) for n in VARIANTS for s in (1, 4, 1000) if (n, s) != ("b", 1000)])
def test_stops_at_a_type_that_holds_less(name: str, size: int) -> None:
    """The task fails at the change, the error has both types, and the table contains all earlier changes."""
    of = variant(name)
    table = dump(of.dump_file)["public.ddl_t"]
    replay, records = Replay(of, table), records_of(table, of)
    with pytest.raises(Fatal) as stopped:
        replay.deliver([Chunk(records[begin : begin + size]) for begin in range(0, len(records), size)])
    assert all(kind in str(stopped.value) for kind in STOPS[name])
    have = rows_of(replay.content(), ("id",))
    expected = {row_key(row, ("id",)): row for row in last_images(records[: replay.written], of)}
    placeholder = Placeholder(of.placeholder)
    assert have.keys() == expected.keys()
    for key, row in expected.items():
        cells = {column: cell for column, cell in row.items() if cell is not None and not placeholder.is_form(cell)}
        assert {column: plain(without_nulls(have[key][column])) for column in cells} == cells


def test_two_types_in_one_chunk_without_schemas() -> None:
    """Without schemas, the value that does not fit the others of its column is refused."""
    of = variant("b")
    replay, records = Replay(of, dump(of.dump_file)["public.ddl_t"]), records_of(dump(of.dump_file)["public.ddl_t"], of)
    replay.deliver([Chunk(records)])
    [refused] = replay.refused
    assert b'"added_def":"now text"' in (records[refused].value or b"")
