"""Tests of reselect for Oracle events: large objects are read as of the commit SCN of the event."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from fake_oracle.server import OracleColumn, OracleServer, OracleTable
from support.records.envelopes import PLACEHOLDER, change, key
from support.sources.oracle_tables import row_source

from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.merge.fold import fold
from headrace.core.model.catalog import HandlingModes
from headrace.core.model.events import Changes
from headrace.core.reselect.options import ReselectOptions
from headrace.runtime.pipeline.reselect import Reselect

EXAMPLE = {"ID": 1, "DOC": "text"}


@dataclass
class Record:
    value: bytes
    offset: int
    key: bytes = key({"ID": 1})
    partition: int = 0
    timestamp: int = 7
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def update(doc: str | None, scn: int, offset: int) -> Record:
    """Return an update of row 1 as the connector's LogMiner adapter sends it."""
    document = json.loads(change("u", {"ID": 1, "DOC": doc}, 0, columns=EXAMPLE))
    source = {"connector": "oracle", "name": "ora", "db": "SHOP", "schema": "APP", "table": "DOCS", "ts_ms": 1}
    document["payload"]["source"] = source | {"txId": "0a00", "commit_scn": str(scn), "txSeq": 1}
    return Record(json.dumps(document).encode(), offset)


@pytest.fixture
def server() -> OracleServer:
    """Return a server whose row 1 is ``first`` as of SCN 110 and ``second`` as of SCN 120."""
    server = OracleServer()
    columns = (OracleColumn("ID", "NUMBER", 18, 0), OracleColumn("DOC", "CLOB", length=4000))
    server.add(OracleTable("APP", "DOCS", columns, ("ID",)))
    for doc in ("first", "second"):
        server.commit("APP", "DOCS", {"ID": Decimal(1), "DOC": doc})
    return server


def resolved(server: OracleServer, *records: Record, **options: Any) -> list[list[Any]]:
    """Write each record as a batch, and return the values of DOC."""
    reselect = ReselectOptions(null_values=False, **options)
    post = Reselect(reselect, row_source(server, **options))
    post.cache.assign([("docs", 0)])
    decoder = TopicDecoder("docs", EnvelopeOptions(modes=reselect.modes), post.catalog)
    found = []
    for record in records:
        (changes,) = decoder.decode([record]).events
        assert isinstance(changes, Changes)
        actions = post.resolve(fold(changes)).actions
        post.cache.commit(actions.table)
        found.append(next(column for column in actions.columns if column.name == "DOC").values.to_pylist())
    return found


def test_placeholder_is_filled_as_of_the_events_commit(server: OracleServer) -> None:
    """A placeholder is filled with the value as of the event's commit SCN, not with a later one."""
    assert resolved(server, update(PLACEHOLDER, 110, 0), update(PLACEHOLDER, 120, 1)) == [["first"], ["second"]]


def test_null_is_read_again_unless_lobs_are_captured(server: OracleServer) -> None:
    """S20: without ``lob.enabled`` a null of a large object is read again. With it the null is a value."""
    assert resolved(server, update(None, 110, 0)) == [["first"]]
    assert resolved(server, update(None, 110, 0), modes=HandlingModes(lob_enabled=True)) == [[None]]


@pytest.mark.parametrize(("lob_enabled", "queries"), [(False, 2), (True, 1)])
def test_large_object_is_cached_only_if_all_changes_are_captured(
    server: OracleServer, lob_enabled: bool, queries: int
) -> None:
    """With ``lob.enabled`` the second placeholder is served from the cache. Without it the value is read again."""
    modes = HandlingModes(lob_enabled=lob_enabled)
    records = update(PLACEHOLDER, 120, 0), update(PLACEHOLDER, 120, 1)
    assert resolved(server, *records, modes=modes, cache_enabled=True, cache_admission="always") == [["second"]] * 2
    assert len([text for text, _ in server.statements if "AS OF SCN" in text]) == queries
