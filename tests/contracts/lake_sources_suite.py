"""What a table stores about its source tables and their writers."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from support.lake.lake_actions import TOPIC, commit, text
from support.lake.lake_harness import ITEM, NOW, LakeFixtures, LakeHarness, item, items

from headrace.core.model.errors import Retriable
from headrace.core.model.events import RowVersion, TableId
from headrace.core.model.keys import FLOOR_KEY
from headrace.core.model.proof import Proof
from headrace.core.tables.table_sources import TableSource
from headrace.ports import LakeTable, TopicPartition

SHOP = TableSource("shop", "connect-shop", "p.public.item", TableId("p", "shop", "public", "item"), "a-topic-id")
OTHER = TableSource("other", "connect-other", "q.public.item", TableId("q", "shop", "public", "item"))
UNNAMED = TableId("", "", "", "")


class LakeSourcesSuite(LakeFixtures):
    """Run as a part of ``LakeTableSuite``."""

    def test_the_creation_of_a_table_stores_its_source(self, lake: LakeHarness, name: str) -> None:
        """A source that is registered before the table exists is stored with it, and not before."""
        table = lake.open(name)
        table.register(SHOP)
        assert list(table.sources()) == [SHOP]
        assert list(lake.open(name).sources()) == []
        table.evolve(ITEM, ["id"])
        assert list(table.sources()) == list(lake.open(name).sources()) == [SHOP]

    def test_a_table_that_exists_stores_a_source_at_once(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Registering again has no effect, and replaced sources are removed."""
        former = replace(SHOP, connector="former", table=UNNAMED)
        for source, replaced in ((former, ()), (OTHER, ()), (SHOP, [former]), (SHOP, [former])):
            table.register(source, replaced)
        assert list(table.sources()) == list(lake.open(name).sources()) == [SHOP, OTHER]
        changed = replace(SHOP, group="connect-renamed", topic_id="another-id")
        table.register(changed)
        assert list(lake.open(name).sources()) == [changed, OTHER]

    def test_another_handle_sees_that_a_source_was_replaced(
        self, lake: LakeHarness, name: str, table: LakeTable
    ) -> None:
        """A writer whose table another one adopts sees it with its next batch."""
        table.register(SHOP)
        table.merge(items(item(1, position=11)), commit(1, **{TOPIC: 40}))
        lake.open(name).register(OTHER, [SHOP])
        assert list(table.sources()) == [OTHER]

    def test_a_batch_sees_what_others_did_before_it_began(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Within the batch, a handle sees its own commit; with the next batch it sees all others."""
        table.register(SHOP)
        table.begin_batch()
        assert list(table.sources()) == [SHOP]
        table.merge(items(item(1, position=11)), commit(1, **{TOPIC: 40}))
        assert table.reached("connect-sink") == {TopicPartition(TOPIC, 0): 40}
        other = lake.open(name)
        other.register(OTHER, [SHOP])
        other.merge(items(item(2, position=12)), commit(2, **{TOPIC: 50}))
        table.begin_batch()
        assert list(table.sources()) == [OTHER]
        assert table.reached("connect-sink") == {TopicPartition(TOPIC, 0): 50}
        table.register(SHOP, [OTHER])
        assert list(table.sources()) == [SHOP]

    def test_a_proof_is_stored_with_the_table(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """The newest proof counts, for every handle; a table without one, or that does not exist, has none."""
        assert table.proof() is None
        assert lake.open("missing").proof() is None
        lake.open("missing").record_proof(Proof("postgresql:1", NOW / 1_000_000, 1))
        assert lake.open("missing").schema() is None
        table.merge(items(item(1, position=11)), commit(1, **{TOPIC: 40}))
        for rows, not_compared in ((7, ("it's", 'a, "b"')), (8, ())):
            proof = Proof(f"postgresql:{rows}", 1_700_000_000.0, rows, not_compared=not_compared)
            table.record_proof(proof)
            assert table.proof() == lake.open(name).proof() == proof
        table.merge(items(item(2, position=12)), commit(2, **{TOPIC: 41}))
        assert lake.open(name).proof() == Proof("postgresql:8", 1_700_000_000.0, 8)
        with_digest = Proof("postgresql:9", 1_700_000_000.0, 9, "00c0ffee00c0ffee", "5903478123")
        for proof in (with_digest, Proof("postgresql:10", 1_700_000_000.0, 10)):
            table.record_proof(proof)
            assert lake.open(name).proof() == proof  # nothing is left of the one before

    def test_a_snapshot_is_read_after_later_commits(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Whatever has changed since, and with the columns that it had."""
        assert lake.open("missing").snapshot(["id"]) is None
        before = table.snapshot(["id", "name"])
        assert before is not None
        rows = [row for piece in table.scan(["id", "name"], before) for row in piece.to_pylist()]
        table.merge(items(item(1, "changed", position=11), item(2, position=12)), commit(1, **{TOPIC: 40}))
        assert [row for piece in table.scan(["id", "name"], before) for row in piece.to_pylist()] == rows
        assert sum(len(piece) for piece in table.scan(["id", "name"], table.snapshot(["id"]))) == 2
        table.evolve(pa.schema([*ITEM, ("more", pa.string())]), ["id"])
        assert table.snapshot(["id", "more"]) is None or sum(map(len, table.scan(["more"]))) == 2

    def test_a_table_that_another_handle_has_created_is_not_written(self, lake: LakeHarness, name: str) -> None:
        """Of two writers that begin to write one new table, the other one fails and sees whose table it is."""
        first, second = lake.open(name), lake.open(name)
        first.register(SHOP)
        second.register(OTHER)
        first.evolve(ITEM, ["id"])
        with pytest.raises(Retriable, match="another writer created the table"):
            second.evolve(ITEM, ["id"])
        assert list(second.sources()) == [SHOP]

    def test_an_early_ledger_stores_the_source(self, lake: LakeHarness, name: str) -> None:
        """A truncate before the first row belongs to its writer, as the table does that is created after it."""
        floor = {FLOOR_KEY: RowVersion(text(11), TOPIC, 0, 0, 0)}
        first = lake.open(name)
        first.register(SHOP)
        first.record_tombstones(floor, NOW)
        assert list(lake.open(name).sources()) == [SHOP]
        again = lake.open(name)
        again.evolve(ITEM, ["id"])
        assert list(again.sources()) == [SHOP]
        lake.drop(name)
        new = lake.open(name)
        new.evolve(ITEM, ["id"])
        assert (list(new.sources()), new.ledger()) == ([], {})

    def test_a_table_of_an_earlier_release_shows_who_committed_last(
        self, lake: LakeHarness, name: str, table: LakeTable
    ) -> None:
        """Commits have connector, group and topics; commits of repairs and upkeep do not hide them."""
        assert list(table.sources()) == []
        table.merge(items(item(1, position=11)), commit(1, first=40, second=7))
        assert list(lake.open(name).sources()) == [
            TableSource("sink", "connect-sink", topic, UNNAMED) for topic in ("first", "second")
        ]

    def test_names_that_look_like_secrets_are_stored(self, lake: LakeHarness, name: str) -> None:
        """Spark replaces such values where it lists properties (``spark.redaction.regex``)."""
        source = replace(SHOP, topic="p.public.access_tokens", table=TableId("p", "url", "secret", "password"))
        table = lake.open(name)
        table.register(source)
        schema = pa.schema([("token", pa.int64()), ("name", pa.string())])
        table.evolve(schema, ["token"])
        assert lake.open(name).key_fields() == ("token",)
        assert list(lake.open(name).sources()) == [source]
