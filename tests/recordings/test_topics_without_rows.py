"""Topics of a connector that hold no rows: what a task does when it is subscribed to them."""

from __future__ import annotations

import pytest
from recordings.records import MARIADB, recording

from headrace.core.envelope import NO_SCHEMA_CHANGES, EnvelopeOptions, TopicDecoder

WITHOUT_ROWS = [*((name, topic) for name in MARIADB for topic in (name, f"{name}.transaction")), ("mymin", "mymin")]


@pytest.mark.parametrize(("name", "topic"), WITHOUT_ROWS)
def test_schema_changes_and_transactions_are_skipped(name: str, topic: str) -> None:
    """They are counted, and their offsets move; nothing of them is a bad record. That DDL is not applied is said once.

    ``mymin`` has nothing else: that connector stops at the first row of a minimal image.
    """
    schemas = name == "my"
    decoder = TopicDecoder(topic, EnvelopeOptions(key_schemas=schemas, value_schemas=schemas))
    decoded = decoder.decode(recording(name)[topic])  # type: ignore[arg-type]  # frozen, where the protocol is not
    assert (decoded.pieces, decoded.errant) == ([], [])
    assert decoded.skipped == len(recording(name)[topic]) > 0
    assert decoded.notes == ([] if "transaction" in topic else [NO_SCHEMA_CHANGES])
