"""Notes on tables whose changes the database does not publish under their names: only snapshots send their rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.envelope_columns import UNPUBLISHED_PARTITION, UNPUBLISHED_ROOT, UNPUBLISHED_TABLE
from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, NoCatalog, SqlType
from headrace.core.model.events import TableId
from headrace.core.model.notes import Note

INT = SqlType(23, "pg_catalog", "int4")


@dataclass
class Record:
    value: bytes
    offset: int
    key: bytes = b'{"id":1}'
    partition: int = 0
    timestamp: int = 7
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def read(offset: int) -> Record:
    """A snapshot read, as JSON without schemas."""
    source = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "items"}
    payload = {"before": None, "after": {"id": 1}, "source": source | {"snapshot": "true"}, "op": "r"}
    return Record(json.dumps(payload).encode(), offset)


@dataclass
class PublishedCatalog(NoCatalog):
    """A catalog of one kind of table."""

    relkind: str
    partition: bool
    published: bool

    def table(self, table: TableId) -> CatalogTable:
        columns = (CatalogColumn("id", 1, INT, attlen=4),)
        key = (KeyColumn("id", INT),)
        return CatalogTable(table, self.relkind, "d", columns, key, partition=self.partition, published=self.published)


@pytest.mark.parametrize(
    ("catalog", "note"),
    [
        (PublishedCatalog("r", partition=True, published=False), UNPUBLISHED_PARTITION),
        (PublishedCatalog("p", partition=False, published=False), UNPUBLISHED_ROOT),
        (PublishedCatalog("r", partition=False, published=False), UNPUBLISHED_TABLE),
    ],
)
def test_a_table_that_is_not_published_is_noted_once(catalog: PublishedCatalog, note: Note) -> None:
    """With the first events of its topic, and not again with later ones."""
    decoder = TopicDecoder("t", EnvelopeOptions(key_schemas=False, value_schemas=False), catalog)
    assert [decoder.decode([read(offset)]).notes for offset in range(2)] == [[note], []]


@pytest.mark.parametrize("relkind", ["r", "p"])
def test_a_published_table_is_not_noted(relkind: str) -> None:
    """A partition is published under its own name as well, if the publication does not use the root."""
    catalog = PublishedCatalog(relkind, partition=relkind == "r", published=True)
    decoder = TopicDecoder("t", EnvelopeOptions(key_schemas=False, value_schemas=False), catalog)
    assert decoder.decode([read(0)]).notes == []
