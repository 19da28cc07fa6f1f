"""Mutations of the code that decides what a table contains. A test has to fail for each of them.

``check.py`` applies them one by one. ``tests/unit/test_mutations.py`` keeps each of them applicable.
"""

from __future__ import annotations

from dataclasses import dataclass

from support.repository.changed_sources import (
    Change,
    Edit,
    also,
    always,
    becoming,
    boundary,
    dropped,
    never,
    otherwise,
    reversed_order,
    unfiltered,
    value,
    without,
)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of one marked line; with other lines that would have the same effect."""

    name: str
    edits: tuple[Edit, ...]


def _of(subject: str, *changes: tuple[str, str, Change]) -> tuple[Mutation, ...]:
    return tuple(Mutation(f"{subject}: {name}", (Edit(marker, change),)) for name, marker, change in changes)


RANKING = _of(
    "events",
    ("an equal position applies", "equal-position", boundary),
    ("an earlier offset arrives later", "later-offset", reversed_order),
    ("a row takes a lower position", "highest-position", becoming("max(new.position, old.position)", "new.position")),
)

GATE = _of(
    "applicable_events",
    ("a tombstone after its delete is a delete of its own", "repeated-delete", becoming("~grouped", "grouped")),
    ("equal positions are in order", "rising-positions", boundary),
    ("offsets may fall", "rising-offsets", without(-1)),
    ("the floor blocks deletes", "above-floor", without(0)),
    ("the floor blocks nothing", "above-floor", always),
    ("a tombstone of this batch's own delete blocks", "exempt-from-tombstones", without(-1)),
    ("an event at the tombstone's position applies", "above-tombstone", becoming("> floor", ">= floor")),
    ("rows that are up to date are folded again", "rows-up-to-date", always),
    ("a delete of this batch blocks deletes", "rivals-of-deletes", otherwise),
    ("a walked delete leaves its row", "walked-delete", becoming("(None, ", "(row, ")),
)

FOLD = _of(
    "fold",
    ("an update after a delete goes on with the deleted row", "after-delete", never),
    ("a snapshot read is an update", "snapshot-reads", without(-1)),
    ("a new image keeps cells of the row before it", "cells-of-image", becoming("rows.begin", "rows.alive")),
    ("a column that a new image lacks keeps its cell", "image-without-column", value("CellState.ABSENT")),
    ("an unchanged cell follows a null", "contradicted-cells", becoming(" | contradiction", "")),
    (
        "the first position forgets a new image",
        "oldest-position",
        becoming("rows.fresh & ~rows.deleted", "rows.deleted"),
    ),
    ("a row without a position takes the delete's", "row-without-position", becoming("rows.alive", "0")),
    (
        "a delete under a row without a position leaves no tombstone",
        "tombstone-under-row",
        becoming("~rows.deleted", "rows.deleted"),
    ),
)

TOMBSTONES = _of(
    "tombstones",
    ("tombstones that lie ahead block", "tombstones-ahead", dropped),
    ("taken keys are set aside", "floor-stays", without(-1)),
    ("the floor is set aside", "floor-stays", without(0)),
    ("tombstones ahead are forgotten", "tombstones-set-aside", dropped),
    ("tombstones of others are not learned", "tombstones-of-others", dropped),
)

ACTIONS = _of(
    "actions",
    ("cells come from whichever row has the old key", "carried-from-stored", becoming(".origin, stored)", ".origin)")),
)

OFFSETS = _of(
    "offsets",
    ("an offset passes a chunk that is not durable", "offsets-in-order", without(-1)),
)

COMBINE = _of(
    "combine",
    ("a column that a run lacks is null", "column-of-other-run", becoming("CellState.ABSENT", "CellState.NULL")),
    (
        "runs of other key columns are combined",
        "runs-of-one-key",
        becoming(
            "(run.version.topic, run.key_fields) != (shape.topic, shape.key_fields)",
            "run.version.topic != shape.topic",
        ),
    ),
)

TOMBSTONES_OF_FETCHES = _of(
    "event_pairs",
    ("a tombstone in a later fetch is a delete of its own", "tombstone-of-fetch", value("changes")),
    ("an offset may be committed between a delete and its tombstone", "offset-before-tombstone", value("end")),
)

LEDGER = _of(
    "table_ledger",
    ("the ledger of another assignment is kept", "ledger-of-assignment", dropped),
    ("what was recorded is not known", "ledger-recorded", dropped),
    ("another worker's deletes are not read", "ledger-of-others", never),
)

PIPELINE = _of(
    "table_pipeline",
    ("a merge that did not apply is taken for done", "merge-applied", without(0)),
    ("a failed batch leaves the ledger as it is", "ledger-after-failure", dropped),
    ("a row that another worker removed is missed", "removed-by-others", dropped),
)

CACHE = _of(
    "column_cache",
    ("a drop of the whole table leaves reads in flight", "drop-ends-reads", dropped),
    ("entries of lost partitions are served", "lost-partitions", never),
    ("a later event's value is served", "S11", without(0)),
    ("an older value replaces a newer one", "newer-value", never),
    ("a row read before a delete is stored", "S8", otherwise),
)

DECODER = _of("event_versions", ("snapshot reads have positions", "reads-without-position", never)) + _of(
    "envelope_columns",
    ("deletes leave placeholders out", "placeholders-of-deletes", always),
    ("a new key's nulls are real", "nulls-of-new-key", never),
)

DIVISION = _of(
    "event_pairs",
    ("a batch is divided within a key change", "division-of-pairs", becoming("min(halves)", "max(halves)")),
)

KEY_CHANGES = _of(
    "event_pairs",
    ("any delete of the old key is the other half", "other-half", unfiltered),
    ("the positions of two halves may differ", "position-of-halves", without(-1)),
)

CARRY = _of(
    "key_changes",
    ("a row of any time supplies its cells", "life-before-change", without(-1)),
    ("the last cell of a life is its first", "last-cell", becoming("reversed(life.events)", "life.events")),
    ("a life goes on behind its beginning", "begin-of-life", never),
)

RUNS = _of(
    "combine",
    ("a truncate is joined with changes", "barriers-alone", dropped),
)

HELD_HALVES = _of(
    "held_halves",
    ("no half waits", "halves-wait", always),
    ("later events of a held key go on", "held-key", without(0)),
    ("a half is released alone although the other one is held", "release-of-pairs", without(-1)),
    ("key changes in a circle are released in any order", "first-of-circle", becoming("half is not first", "False")),
)

BATCH = _of(
    "table_queue",
    ("offsets pass a half that waits", "offset-of-held", becoming("min(", "max(")),
    ("a truncate does not wait for halves", "truncate-waits", without(-1)),
    ("a truncate divides halves that are released together", "joined-parts", never),
    ("halves of a key change may be in two batches", "joined-in-batch", without(0)),
)

TABLE_LANE = _of(
    "table_lane",
    ("an error of a dropped assignment fails the table", "error-of-dropped", never),
    ("a table is written while a dropped assignment writes it", "one-writer", value("asyncio.Lock()")),
    ("a half is closed before what has arrived is in the queue", "arrived-first", value("()")),
    ("what waits undecoded is not in the batch", "undecoded-first", never),
    ("what waits undecoded behind no change is forgotten", "undecoded-due", never),
)

ASSIGNMENT = _of(
    "assignment",
    ("a half does not wait for what is decoded now", "decoded-later", value("()")),
    ("a half that waited undecoded does not wait for the other one", "waits-from-decoding", never),
    ("a dropped assignment commits its late results", "late-results", never),
    ("a half that is held keeps its topic paused", "crowded-topics", becoming("not lane.is_full", "lane.is_full")),
)

DIRECT_COMMITS = _of(
    "direct commits",
    ("an outranked change applies", "outranked-change", dropped),
    ("versions below the positions of the file are not read", "positions-of-file", dropped),
    ("a row takes a lower position", "lower-position", always),
    ("rows that are marked have cells", "marked-rows", never),
    ("a row that is marked loses its cells", "marked-row-stays", value("source")),
    ("a row keeps cells of no row", "kept-cells", value("np.where(actions.delete, has_row, True)")),
    ("a new row keeps the cells of columns that it lacks", "absent-cells", value("locations")),
    ("cells are carried from whichever row has the old key", "carried-as-expected", dropped),
)

HEADER_KEYS = _of(
    "codec",
    ("an unreadable header is a bad record", "unreadable-headers", value("()")),
)

FOUND_BY_HISTORIES = (
    *_of(
        "tombstones",
        ("the ledger is read as empty", "ledger-read", becoming("self._ledger.of(keys)", "{}")),
    ),
    *_of(
        "fold",
        (
            "a new image keeps the stored cells",
            "image-replaces-row",
            becoming("rows.fresh", "np.zeros_like(rows.fresh)"),
        ),
        (
            "a value behind a doubtful null is doubted, and one before it is not",
            "contradicted-cells",
            becoming("doubted > certain", "doubted < certain"),
        ),
    ),
    *_of(
        "applicable_events",
        ("deletes of displaced rows apply", "displaced-rows", never),
    ),
    *_of(
        "held_halves",
        (
            "an assigned partition without a chunk is empty",
            "partition-without-chunk",
            becoming("not in progress.stopped", "not in progress.stopped and entry[1] > -inf"),
        ),
    ),
)
"""What only a history shows. ``test_source_databases.py`` alone has to find each of them, besides ``DEFECTS``."""

DEFECTS = (
    # A half that waits holds back the later rows of its key, so that the next pairing is hardly ever wrong.
    Mutation("defect 1: a key change takes cells from another life", KEY_CHANGES[0].edits + HELD_HALVES[0].edits),
    *_of(
        "topic_tables",
        (
            "defect 2, a tombstone is of the table that its topic had last",
            "table-of-tombstone",
            becoming("self.tail.names", "self._last"),
        ),
    ),
    *_of(
        "table_pipeline",
        (
            "defect 3, a truncate before the table is forgotten",
            "floor-recorded",
            also("self._table.schema()"),
        ),
        ("defect 4, a key is left by whoever has it", "keys-taken", value("[]")),
    ),
    *_of(
        "envelope_columns",
        ("defect 5, equal positions are not refused", "equal-positions-refused", never),
    ),
    *_of(
        "cell_states",
        ("defect 6, a column that an event lacks is null", "absent-column", value("CellState.NULL")),
    ),
    *_of(
        "codec",
        (
            "defect 11, a decimal key in a header is no number",
            "decimal-header",
            becoming("(False, True)", "(False,)"),
        ),
    ),
    Mutation("defect 12: the halves of a key change are not held", HELD_HALVES[0].edits),
)
"""Each takes out what fixes a defect that the histories of the simulated databases have to find by themselves."""

MUTATIONS: tuple[Mutation, ...] = (
    *DEFECTS,
    *FOUND_BY_HISTORIES,
    *KEY_CHANGES,
    *CARRY,
    *RUNS,
    *HELD_HALVES[1:],
    *BATCH,
    *TABLE_LANE,
    *ASSIGNMENT,
    *RANKING,
    *GATE,
    *FOLD,
    *TOMBSTONES,
    *ACTIONS,
    *OFFSETS,
    *COMBINE,
    *TOMBSTONES_OF_FETCHES,
    *LEDGER,
    *PIPELINE,
    *CACHE,
    *DECODER,
    *HEADER_KEYS,
    *DIRECT_COMMITS,
    *DIVISION,
)
