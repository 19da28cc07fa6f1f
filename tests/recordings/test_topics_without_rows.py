"""Topics of a connector that hold no rows: what a task does when it is subscribed to them."""

from __future__ import annotations

import pytest
from recordings.records import MARIADB, recording

from headrace.core.column_defaults import ColumnDefault
from headrace.core.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.events import TableId
from headrace.core.notes import Note
from headrace.core.schema_changes import RENAMED

WITHOUT_ROWS = [*((name, topic) for name in MARIADB for topic in (name, f"{name}.transaction")), ("mymin", "mymin")]


@pytest.mark.parametrize(("name", "topic"), WITHOUT_ROWS)
def test_schema_changes_and_transactions_are_skipped(name: str, topic: str) -> None:
    """They are counted, and their offsets move; nothing of them is a bad record.

    ``mymin`` has nothing else: that connector stops at the first row of a minimal image.
    """
    schemas = name == "my"
    decoder = TopicDecoder(topic, EnvelopeOptions(key_schemas=schemas, value_schemas=schemas))
    decoded = decoder.decode(recording(name)[topic])  # type: ignore[arg-type]  # frozen, where the protocol is not
    assert (decoded.pieces, decoded.errant) == ([], [])
    assert decoded.skipped == len(recording(name)[topic]) > 0


@pytest.mark.parametrize("name", MARIADB)
def test_altered_tables_are_told(name: str) -> None:
    """Every table that a record names, and what rows that do not change have in new columns."""
    schemas = name == "my"
    decoder = TopicDecoder(name, EnvelopeOptions(key_schemas=schemas, value_schemas=schemas))
    decoded = decoder.decode(recording(name)[name])  # type: ignore[arg-type]  # frozen, where the protocol is not
    tables = {"customers", "nopk", "orders", "trunc_me", "types", "uniq", "late", "late2"}
    assert {change.table for change, _ in decoded.altered} == {TableId(name, "inv", "", table) for table in tables}
    assert Note(RENAMED, "inv.customers.mail") in decoded.notes
    [(added, version)] = [each for each in decoded.altered if each[0].defaults]
    assert added.defaults == (ColumnDefault("phone", "text", "none"), ColumnDefault("vip", "number", "0"))
    assert version.position == b"00000.0000000003.00000000000000000763.0000000000"
