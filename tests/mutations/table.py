"""One-line mutations of the code that decides what a table contains. A test has to fail for each of them.

``check.py`` applies them one by one. ``tests/unit/test_mutations.py`` keeps each of them applicable.
"""

from __future__ import annotations

from dataclasses import dataclass

from support.repository.changed_sources import Edit

CORE = "service/headrace/core"


@dataclass(frozen=True, slots=True)
class Mutation:
    """A line of the sources and its replacement; with other lines that would have the same effect."""

    name: str
    edits: tuple[Edit, ...]


def _of(path: str, *changes: tuple[str, str, str]) -> tuple[Mutation, ...]:
    module = path.rpartition("/")[2].removesuffix(".py")
    return tuple(Mutation(f"{module}: {name}", (Edit(path, old, new),)) for name, old, new in changes)


RANKING = _of(
    f"{CORE}/model/events.py",
    ("an equal position applies", "return new.position > old.position", "return new.position >= old.position"),
    ("an earlier offset arrives later", "return new.offset > old.offset", "return new.offset < old.offset"),
    (
        "a row takes a lower position",
        "replace(new, position=max(new.position, old.position))",
        "replace(new, position=new.position)",
    ),
)

GATE = _of(
    f"{CORE}/merge/applicable_events.py",
    (
        "a tombstone after its delete is a delete of its own",
        "repeats &= ~grouped.starts()",
        "repeats &= grouped.starts()",
    ),
    ("equal positions are in order", "version.position[1:] > version.position[:-1]", "version.position[1:] >= b''"),
    ("offsets may fall", "(version.offset[1:] > version.offset[:-1])", "(version.offset[1:] > -1)"),
    (
        "the floor blocks deletes",
        "applies &= deletes | above",
        "applies &= above",
    ),
    (
        "the floor blocks nothing",
        "applies &= deletes | above",
        "applies &= deletes | True",
    ),
    (
        "a tombstone of this batch's own delete blocks",
        "exempt = deletes | _deleted_later(version, grouped, deletes, tombstones)",
        "exempt = deletes",
    ),
    (
        "an event at the tombstone's position applies",
        "(version.position > floor[grouped.code])",
        "(version.position >= floor[grouped.code])",
    ),
    ("rows that are up to date are folded again", "applies &= ~done[grouped.code]", "applies &= True"),
    (
        "a delete of this batch blocks deletes",
        "rivals = (row or gone,) if deletes[index] else (gone, row)",
        "rivals = (gone, row)",
    ),
    ("a walked delete leaves its row", "row, gone = None, succeed(event, gone)", "gone = succeed(event, gone)"),
)

FOLD = _of(
    f"{CORE}/merge/fold.py",
    (
        "an update after a delete goes on with the deleted row",
        "after_delete[1:] = deletes[:-1] & ~starts[1:]",
        "after_delete[1:] = False",
    ),
    (
        "a snapshot read is an update",
        "images = (operation == Operation.CREATE) | (operation == Operation.READ)",
        "images = operation == Operation.CREATE",
    ),
    (
        "a new image keeps cells of the row before it",
        "(latest >= rows.begin for latest in (known, doubted, omitted))",
        "(latest >= rows.alive for latest in (known, doubted, omitted))",
    ),
    (
        "a column that a new image lacks keeps its cell",
        "folded[rows.fresh] = CellState.NULL",
        "folded[rows.fresh] = CellState.ABSENT",
    ),
    (
        "an unchanged cell follows a null",
        "folded[is_known & ((doubted > known) | contradiction)]",
        "folded[is_known & (doubted > known)]",
    ),
    (
        "the first position forgets a new image",
        "np.minimum(oldest, rows.begin, out=oldest, where=rows.fresh & ~rows.deleted)",
        "np.minimum(oldest, rows.begin, out=oldest, where=rows.deleted)",
    ),
    (
        "a row without a position takes the delete's",
        "np.where(positioned >= rows.alive, position[positioned], NO_POSITION)",
        "np.where(positioned >= 0, position[positioned], NO_POSITION)",
    ),
    (
        "a delete under a row without a position leaves no tombstone",
        "bare = ~rows.deleted & (version.position == NO_POSITION)",
        "bare = rows.deleted & (version.position == NO_POSITION)",
    ),
)

TOMBSTONES = _of(
    f"{CORE}/merge/tombstones.py",
    ("tombstones that lie ahead block", "self._set_aside(partition, offset)\n", "pass\n"),
    ("the floor is set aside", "            and key != FLOOR_KEY\n", ""),
    ("tombstones ahead are forgotten", "self.entries[key] = succeed(version, self.entries.get(key))", "pass"),
    ("tombstones of others are not learned", "        self.learned |= added\n", ""),
)

ACTIONS = _of(
    f"{CORE}/model/actions.py",
    (
        "cells come from whichever row has the old key",
        "CarriedCells(actions.carried.origin, stored)",
        "CarriedCells(actions.carried.origin)",
    ),
)

OFFSETS = _of(
    f"{CORE}/batch/offsets.py",
    ("an offset passes a chunk that is not durable", "chunks[0].missing == 0", "True"),
)

COMBINE = _of(
    f"{CORE}/batch/combine.py",
    (
        "a column that a run lacks is null",
        "np.full(len(run), CellState.ABSENT, np.uint8)",
        "np.full(len(run), CellState.NULL, np.uint8)",
    ),
    (
        "runs of other key columns are combined",
        "(run.version.topic, run.key_fields) != (shape.topic, shape.key_fields)",
        "run.version.topic != shape.topic",
    ),
)

TOMBSTONES_OF_FETCHES = _of(
    f"{CORE}/batch/event_pairs.py",
    (
        "a tombstone in a later fetch is a delete of its own",
        "return changes.slice(1, len(changes)) if len(changes) > 1 else None",
        "return changes",
    ),
    (
        "an offset may be committed between a delete and its tombstone",
        "        return int(last.version.offset[-1])\n",
        "        return end\n",
    ),
)

LEDGER = _of(
    "service/headrace/runtime/pipeline/table_ledger.py",
    ("the ledger of another assignment is kept", "        self._assigned_anew = True\n", "        pass\n"),
    ("what was recorded is not known", "        self.entries.update(new)\n", ""),
    ("another worker's deletes are not read", "        if self._table.ledger_moved():", "        if False:"),
)

PIPELINE = _of(
    "service/headrace/runtime/pipeline/table_pipeline.py",
    (
        "a merge that did not apply is taken for done",
        "    return counts.upserted == upserts and missing",
        "    return missing",
    ),
    (
        "a failed batch leaves the ledger as it is",
        "            self._ledger.reset()\n            self._epochs.reset()",
        "            self._epochs.reset()",
    ),
    (
        "a row that another worker removed is missed",
        "            self._ledger.refresh()\n            self._regression.refuse(changes, stored)",
        "            self._regression.refuse(changes, stored)",
    ),
)

CACHE = _of(
    f"{CORE}/reselect/cache/column_cache.py",
    (
        "a drop of the whole table leaves reads in flight",
        '        self._epochs[number] += 1\n        self.counts["drops", cause] += self._rows.drop_table(number)',
        '        self.counts["drops", cause] += self._rows.drop_table(number)',
    ),
    ("entries of lost partitions are served", "cell.stamp.offset < self._assignments.lost(stamp.partition)", "False"),
    ("a later event's value is served", "if cell.stamp.offset > stamp.offset or", "if"),
    ("an older value replaces a newer one", "if old.stamp.offset > cell.stamp.offset:", "if False:"),
    (
        "a row read before a delete is stored",
        'return "offset" if newest > cell.stamp.offset else "stored"',
        'return "stored"',
    ),
)

DECODER = _of(
    f"{CORE}/decode/envelope_columns.py",
    (
        "snapshot reads have positions",
        "if Operation.READ in events.operations:\n            pairs",
        "if False:\n            pairs",
    ),
    ("deletes leave placeholders out", "placeholders &= may_omit", "placeholders &= True"),
    ("a new key's nulls are real", "may_hide[key_changes] = True", "may_hide[key_changes] = False"),
)

DIVISION = _of(
    f"{CORE}/batch/event_pairs.py",
    ("a batch is divided within a key change", "within[min(halves) + 1] += 1", "within[max(halves) + 1] += 1"),
)

KEY_CHANGES = _of(
    f"{CORE}/batch/event_pairs.py",
    (
        "any delete of the old key is the other half",
        "[first for first in deletes[old_key] if _belong_together(changes, first, second)]",
        "deletes[old_key]",
    ),
    ("the positions of two halves may differ", " and positions[0] == positions[1]", ""),
)

CARRY = _of(
    f"{CORE}/merge/key_changes.py",
    (
        "a row of any time supplies its cells",
        "if life is None or not self._precedes(key, events[:end], first):",
        "if life is None:",
    ),
    ("the last cell of a life is its first", "for e in reversed(life.events)", "for e in life.events"),
    ("a life goes on behind its beginning", "            if operation in _IMAGES:", "            if False:"),
)

RUNS = _of(
    f"{CORE}/batch/combine.py",
    ("a truncate is joined with changes", "            case _:\n                return False\n", ""),
)

HELD_HALVES = _of(
    f"{CORE}/batch/held_halves.py",
    (
        "no half waits",
        "if not (self._by_key or followed or changes.key_changes):",
        "if True:",
    ),
    (
        "later events of a held key go on",
        "        waits = self._held.blocks(key) or first in self._gone",
        "        waits = first in self._gone",
    ),
    (
        "a half is released alone although the other one is held",
        " or self._waits_for_another(held):",
        ":",
    ),
)

BATCH = _of(
    f"{CORE}/batch/table_queue.py",
    (
        "offsets pass a half that waits",
        "offsets[partition] = min(offset, offsets[partition])",
        "offsets[partition] = max(offset, offsets[partition])",
    ),
    (
        "a truncate does not wait for halves",
        "self._waiting[0].content.is_barrier and len(self._held))",
        "False)",
    ),
    (
        "a truncate divides halves that are released together",
        "            if part.joined:\n                continue\n",
        "",
    ),
    (
        "halves of a key change may be in two batches",
        "            items[-1].joined or (records",
        "            (records",
    ),
)

TABLE_LANE = _of(
    "service/headrace/runtime/task/table_lane.py",
    ("an error of a dropped assignment fails the table", "if self._gate.is_dropped:", "if False:"),
    (
        "a table is written while a dropped assignment writes it",
        "                async with self.table.turn:\n",
        "                async with asyncio.Lock():\n",
    ),
    (
        "a half is closed before what has arrived is in the queue",
        "                        for message in messages.waiting():\n",
        "                        for message in ():\n",
    ),
)

ASSIGNMENT = _of(
    "service/headrace/runtime/task/assignment.py",
    (
        "a dropped assignment commits its late results",
        "                    if self.is_over:  #",
        "                    if False:  #",
    ),
    ("a half that is held keeps its topic paused", "not lane.is_full:", "lane.is_full:"),
)

HEADER_KEYS = _of(
    f"{CORE}/decode/codec.py",
    ("an unreadable header is a bad record", "_UNREADABLE = (ValueError,", "_UNREADABLE = () and (ValueError,"),
)

FOUND_BY_HISTORIES = (
    *_of(
        "service/headrace/runtime/pipeline/table_ledger.py",
        ("the ledger is read as empty", "= Tombstones(ledger), self._now()", "= Tombstones({}), self._now()"),
    ),
    *_of(
        f"{CORE}/merge/fold.py",
        (
            "a new image keeps the stored cells",
            "        fresh=rows.fresh,\n",
            "        fresh=np.zeros_like(rows.fresh),\n",
        ),
        (
            "a value behind a doubtful null is doubted, and one before it is not",
            "((doubted > known) | contradiction)",
            "((doubted < known) | contradiction)",
        ),
    ),
    *_of(
        f"{CORE}/merge/applicable_events.py",
        ("deletes of displaced rows apply", "    if changes.key_changes.displaced:", "    if False:"),
    ),
    *_of(
        f"{CORE}/batch/held_halves.py",
        (
            "an assigned partition without a chunk is empty",
            "if entry[0] not in progress.stopped)",
            "if entry[0] not in progress.stopped and entry[1] > -inf)",
        ),
    ),
)
"""What only a history shows. ``test_source_databases.py`` alone has to find each of them, besides ``DEFECTS``."""

DEFECTS = (
    # A half that waits holds back the later rows of its key, so that the next pairing is hardly ever wrong.
    Mutation("defect 1: a key change takes cells from another life", KEY_CHANGES[0].edits + HELD_HALVES[0].edits),
    *_of(
        f"{CORE}/decode/topic_tables.py",
        (
            "defect 2, a tombstone is of the table that its topic had last",
            "source, names = events.sources[index], self.tail.names",
            "source, names = events.sources[index], self._last",
        ),
    ),
    *_of(
        "service/headrace/runtime/pipeline/table_pipeline.py",
        (
            "defect 3, a truncate before the table is forgotten",
            "if floor != last_floor:\n                self._ledger.record",
            "if floor != last_floor and self._table.schema():\n                self._ledger.record",
        ),
        ("defect 4, a key is left by whoever has it", "keys = taken_keys(changes)\n", "keys: list[str] = []\n"),
    ),
    *_of(
        f"{CORE}/decode/envelope_columns.py",
        (
            "defect 5, equal positions are not refused",
            "        if _connector(events) == binlog_order.CONNECTOR and not self._keyless:",
            "        if False:",
        ),
    ),
    *_of(
        f"{CORE}/decode/cell_states.py",
        (
            "defect 6, a column that an event lacks is null",
            "        states[missing] = CellState.ABSENT",
            "        states[missing] = CellState.NULL",
        ),
    ),
    *_of(
        f"{CORE}/decode/codec.py",
        (
            "defect 11, a decimal key in a header is no number",
            "for numeric in (False, True)",
            "for numeric in (False,)",
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
    *DIVISION,
)
