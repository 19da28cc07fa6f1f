"""An Oracle event on its way: its commit SCN reaches the SELECT, its large object comes back as of that SCN."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from envelopes import PLACEHOLDER, change, key
from fake_oracle.server import OracleColumn, OracleServer, OracleTable
from unit.sql.oracle_tables import row_source

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
    """An update of row 1 as the connector's LogMiner adapter sends it."""
    document = json.loads(change("u", {"ID": 1, "DOC": doc}, 0, columns=EXAMPLE))
    source = {"connector": "oracle", "name": "ora", "db": "SHOP", "schema": "APP", "table": "DOCS", "ts_ms": 1}
    document["payload"]["source"] = source | {"txId": "0a00", "commit_scn": str(scn), "txSeq": 1}
    return Record(json.dumps(document).encode(), offset)


@pytest.fixture
def server() -> OracleServer:
    """Row 1 is ``first`` as of SCN 110 and ``second`` as of SCN 120."""
    server = OracleServer()
    columns = (OracleColumn("ID", "NUMBER", 18, 0), OracleColumn("DOC", "CLOB", length=4000))
    server.add(OracleTable("APP", "DOCS", columns, ("ID",)))
    for doc in ("first", "second"):
        server.commit("APP", "DOCS", {"ID": Decimal(1), "DOC": doc})
    return server


def resolved(server: OracleServer, *records: Record, **options: Any) -> list[list[Any]]:
    """What stands in DOC after each record, a batch each: the value, or the state of the cell."""
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
    """Not with what came later, which has an event of its own."""
    assert resolved(server, update(PLACEHOLDER, 110, 0), update(PLACEHOLDER, 120, 1)) == [["first"], ["second"]]


def test_null_is_read_again_unless_lobs_are_followed(server: OracleServer) -> None:
    """S20: without ``lob.enabled`` a null says nothing about a large object; with it, it is a null."""
    assert resolved(server, update(None, 110, 0)) == [["first"]]
    assert resolved(server, update(None, 110, 0), modes=HandlingModes(lob_enabled=True)) == [[None]]


@pytest.mark.parametrize(("lob_enabled", "queries"), [(False, 2), (True, 1)])
def test_large_object_is_remembered_only_if_all_its_changes_are_told(
    server: OracleServer, lob_enabled: bool, queries: int
) -> None:
    """The second placeholder is served from the cache, or read again."""
    modes = HandlingModes(lob_enabled=lob_enabled)
    records = update(PLACEHOLDER, 120, 0), update(PLACEHOLDER, 120, 1)
    assert resolved(server, *records, modes=modes, cache_enabled=True) == [["second"]] * 2
    assert len([text for text, _ in server.statements if "AS OF SCN" in text]) == queries
