"""The recorded MariaDB table without a key: its events can only be appended (``merge.md`` sections 12 and 13)."""

from __future__ import annotations

import pytest
from recordings.records import MARIADB, recording

from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.model.events import Changes, Operation

READ, CREATE, UPDATE, DELETE = Operation.READ, Operation.CREATE, Operation.UPDATE, Operation.DELETE


@pytest.mark.parametrize("name", MARIADB)
def test_every_event_but_the_tombstone(name: str) -> None:
    """The record after a delete has neither key nor value, and is no event."""
    schemas = name == "my"
    decoder = TopicDecoder("t", EnvelopeOptions(key_schemas=schemas, value_schemas=schemas, keyless=True))
    decoded = decoder.decode(recording(name)[f"{name}.inv.nopk"])  # type: ignore[arg-type]  # frozen, where the protocol is not
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    assert changes.operation.tolist() == [READ, READ, CREATE, UPDATE, UPDATE, DELETE, CREATE]
    assert (decoded.errant, decoded.skipped) == ([], 1)


@pytest.mark.parametrize("name", MARIADB)
def test_a_merge_refuses_them(name: str) -> None:
    """Each record is reported, also the tombstone, because nothing identifies its row."""
    schemas = name == "my"
    decoder = TopicDecoder("t", EnvelopeOptions(key_schemas=schemas, value_schemas=schemas))
    records = recording(name)[f"{name}.inv.nopk"]
    decoded = decoder.decode(records)  # type: ignore[arg-type]  # frozen, where the protocol is not
    assert decoded.events == []
    assert [errant.index for errant in decoded.errant] == list(range(len(records)))
    assert all("insert.mode=insert" in str(errant.error) for errant in decoded.errant)
