"""Topics of a connector that contain no rows: a task that is subscribed to them."""

from __future__ import annotations

import pytest
from recordings.comparison import compared_tables, records_of
from recordings.records import MARIADB, recording, variant
from recordings.replay import Chunk, Replay

from headrace.core.decode.decoded import TableAltered
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.schema_changes import RENAMED
from headrace.core.model.absent_columns import ColumnDefault, ColumnDefaults
from headrace.core.model.events import TableId
from headrace.core.model.notes import Note

WITHOUT_ROWS = [*((name, topic) for name in MARIADB for topic in (name, f"{name}.transaction")), ("mymin", "mymin")]


@pytest.mark.parametrize(("name", "topic"), WITHOUT_ROWS)
def test_schema_changes_and_transactions_are_skipped(name: str, topic: str) -> None:
    """The records are counted, and their offsets committed; none is a bad record.

    ``mymin`` has no other topics: that connector stops at the first row of a minimal image.
    """
    schemas = name == "my"
    decoder = TopicDecoder(topic, EnvelopeOptions(key_schemas=schemas, value_schemas=schemas))
    decoded = decoder.decode(recording(name)[topic])  # type: ignore[arg-type]  # frozen, where the protocol is not
    assert (decoded.events, decoded.errant) == ([], [])
    assert decoded.skipped == len(recording(name)[topic]) > 0


@pytest.mark.parametrize("name", MARIADB)
def test_altered_tables_are_reported(name: str) -> None:
    """The messages contain every table that a record names, and the defaults of its new columns for existing rows."""
    schemas = name == "my"
    decoder = TopicDecoder(name, EnvelopeOptions(key_schemas=schemas, value_schemas=schemas))
    decoded = decoder.decode(recording(name)[name])  # type: ignore[arg-type]  # frozen, where the protocol is not
    tables = {"customers", "nopk", "orders", "trunc_me", "types", "uniq", "late", "late2"}
    altered = decoded.of(TableAltered)
    assert {each.change.table for each in altered} == {TableId(name, "inv", "", table) for table in tables}
    assert Note(RENAMED, "inv.customers.mail") in decoded.notes
    [added] = [each for each in altered if each.change.defaults]
    assert added.change.defaults == (ColumnDefault("phone", "text", "none"), ColumnDefault("vip", "number", "0"))
    assert added.version.position == b"00000.0000000003.00000000000000000763.0000000000"


@pytest.mark.parametrize("read_before", [0, 8, 100])
@pytest.mark.parametrize("name", MARIADB)
def test_rows_that_do_not_change_get_the_default(name: str, read_before: int) -> None:
    """The row equals the database, whether the statement is read before the rows, between them or after them."""
    of = variant(name)
    table = next(each for each in compared_tables(of) if each.name == "inv.customers")
    records, replay = records_of(table, of), Replay(of, table)
    schemas = name == "my"
    decoder = TopicDecoder(name, EnvelopeOptions(key_schemas=schemas, value_schemas=schemas))
    decoded = decoder.decode(recording(name)[name])  # type: ignore[arg-type]  # frozen, where the protocol is not
    [added] = [each for each in decoded.of(TableAltered) if each.change.defaults]
    replay.deliver([Chunk([record]) for record in records[:read_before]])
    replay.add_columns(ColumnDefaults(added.change.table, added.version, added.change.defaults))
    replay.deliver([Chunk([record]) for record in records[read_before:]])
    replay.finish()
    phones = {row["id"]: row["phone"] for row in replay.content().select(["id", "phone"]).to_pylist()}
    assert phones == {int(row["id"]): row["phone"] for row in table.rows}
    assert list(phones.values()).count("none") == 3
