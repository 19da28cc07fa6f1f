"""The rule behind each case of ``reselect.md`` section 6, as the change to the sources that removes it.

``take_out.py`` applies the changes one by one and requires that the case's tests fail. A rule that two lines enforce is
removed from both. ``tests/unit/test_reselect_cases.py`` checks that every change applies, so that no rule disappears
from this table unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass

from support.repository.changed_sources import Edit

CACHE = "service/headrace/core/reselect/cache/column_cache.py"
CACHE_BATCH = "service/headrace/core/reselect/cache/column_cache.py"
RESELECT_CACHE = "service/headrace/core/reselect/cached_cells.py"
GUARDED_ROWS = "service/headrace/core/reselect/cache/rows.py"
IDENTITY = "service/headrace/core/reselect/rules.py"
OPTIONS = "service/headrace/core/reselect/options.py"
PLAN = "service/headrace/core/reselect/plan.py"
COMPLETION = "service/headrace/core/reselect/completion.py"
READ_ROWS = "service/headrace/core/reselect/rows.py"
PLACEHOLDER = "service/headrace/core/model/unavailable.py"
RESELECT = "service/headrace/runtime/pipeline/reselect.py"
CACHE_SERVICE = "service/headrace/runtime/pipeline/column_cache_service.py"
RULES = "service/headrace/core/reselect/rules.py"
MESSAGE_ROUTER = "service/headrace/runtime/task/message_router.py"
STATES = "service/headrace/core/decode/cell_states.py"
FOLD = "service/headrace/core/merge/fold.py"
MEMORY_TABLE = "dev/headrace_dev/memory/lake_rows.py"
ORACLE = "connectors/headrace_connectors/sql/oracle.py"
POSTGRES = "connectors/headrace_connectors/sql/postgres.py"
POSTGRES_CATALOG = "connectors/headrace_connectors/sql/postgres_catalog.py"


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of a case, and the change that removes it. ``stack`` marks rules that need a real database."""

    case: str
    rule: str
    edits: tuple[Edit, ...]
    stack: bool = False

    @property
    def tests(self) -> str:
        """The prefix of the names of the case's tests: S1 is ``test_s01_``."""
        letter, number = self.case[0].lower(), self.case[1:]
        return f"test_{letter}{number.zfill(2 + (not number[-1].isdigit()))}_"


_NO_DROP_OF_NEW_ROWS = Edit(
    RESELECT_CACHE, "np.flatnonzero(actions.delete | actions.fresh).tolist()", "np.flatnonzero(actions.delete).tolist()"
)
_NO_DROP_OF_DELETED_ROWS = Edit(
    RESELECT_CACHE, "np.flatnonzero(actions.delete | actions.fresh).tolist()", "np.flatnonzero(actions.fresh).tolist()"
)
_NO_DROP = Edit(RESELECT_CACHE, "np.flatnonzero(actions.delete | actions.fresh).tolist()", "[]")
_NO_DROP_AT_ASSIGNMENT = Edit(CACHE, 'self._drop_partition(partition, "assign")\n', "pass\n")
_ANY_GENERATION = Edit(CACHE, " or cell.generation != self._assignments.generation(stamp.partition):", ":")
_LARGE_OBJECTS_TELL_ALL = Edit(RULES, "masked or truncated or silent or generated", "masked or truncated or generated")

RULES_OF_CASES = (
    Rule(
        "S1",
        "a null of an event replaces the cached value",
        (
            Edit(
                RESELECT_CACHE,
                "            batch.for_row(stamps.key(row), stamps[row]).put(column.name, value)\n",
                "            if value is not None:\n"
                "                batch.for_row(stamps.key(row), stamps[row]).put(column.name, value)\n",
            ),
        ),
    ),
    Rule("S1b", "a null of a large object is not remembered", (_LARGE_OBJECTS_TELL_ALL,)),
    Rule("S2", "a delete drops the row from the cache", (_NO_DROP_OF_DELETED_ROWS,)),
    Rule(
        "S3",
        "a truncate drops the table from the cache",
        (Edit(CACHE_SERVICE, 'self._cache.drop_table(table, "truncate")', "pass"),),
    ),
    Rule("S4", "deletes and new incarnations drop the row", (_NO_DROP,)),
    Rule("S5", "a new incarnation drops the row", (_NO_DROP_OF_NEW_ROWS,)),
    Rule(
        "S6",
        "a revoked or assigned partition drops its entries",
        (
            _NO_DROP_AT_ASSIGNMENT,
            _ANY_GENERATION,
            Edit(CACHE, 'self._drop_partition(partition, "revoke")\n', "pass\n"),
        ),
    ),
    Rule(
        "S7",
        "a put of an earlier assignment is rejected",
        (Edit(CACHE, "if cell.generation != self._assignments.generation(cell.stamp.partition):", "if False:"),),
    ),
    Rule(
        "S8",
        "an answer is rejected if a later event has put or dropped",
        (Edit(CACHE, 'return "offset" if newest > cell.stamp.offset else "stored"', 'return "stored"'),),
    ),
    Rule("S9", "an assignment voids what was cached before it", (_NO_DROP_AT_ASSIGNMENT, _ANY_GENERATION)),
    Rule(
        "S10",
        "topics that hide events are not cached",
        (Edit(RESELECT, " and self._may_cache(topic),", ","),),
    ),
    Rule(
        "S11",
        "an entry ahead of the event is a miss",
        (Edit(CACHE, "if cell.stamp.offset > stamp.offset or _goes_back(", "if _goes_back("),),
    ),
    Rule(
        "S12",
        "a value of an event replaces what a query brought",
        (
            Edit(
                RESELECT_CACHE,
                "            batch.for_row(stamps.key(row), stamps[row]).put(column.name, value)\n",
                "            del row, value\n",
            ),
        ),
    ),
    Rule(
        "S13",
        "a missing row has no values",
        (Edit(READ_ROWS, "np.flatnonzero(answer.found & request.needs[:, number])", "np.arange(len(answer.found))"),),
    ),
    Rule(
        "S14",
        "a history reselects no later value",
        (Edit(RULES, "    has_source = has_source and not options.keeps_history\n", ""),),
    ),
    Rule(
        "S15",
        "a standby is queried for the status of the event's transaction",
        (Edit(POSTGRES, "self._visibility.wait(connection, transactions, server.where)", "0.0"),),
        stack=True,
    ),
    Rule(
        "S16",
        "a read waits for a transaction in progress",
        (Edit(POSTGRES, 'if "in progress" in states:', "if False:"),),
        stack=True,
    ),
    Rule(
        "S17",
        "the begin of a snapshot invalidates cached values",
        (
            Edit(CACHE_SERVICE, 'self._cache.drop_table(table, "snapshot")', "pass"),
            Edit(CACHE_SERVICE, 'self._cache.clear("snapshot")', "pass"),
        ),
    ),
    Rule(
        "S18",
        "every form of the placeholder is detected",
        (
            Edit(
                PLACEHOLDER,
                "self._element_texts = _Forms([self.text, standard, url_safe, self.encoded.hex(), self.uuid], ",
                "self._element_texts = _Forms([self.text, standard, url_safe, self.encoded.hex()], ",
            ),
        ),
    ),
    Rule(
        "S19",
        "a null that may hide a value is UNKNOWN",
        (Edit(STATES, "        states[unknown] = CellState.UNKNOWN\n", "        states[unknown] = CellState.NULL\n"),),
    ),
    Rule("S20", "large objects that change without an event are not cached", (_LARGE_OBJECTS_TELL_ALL,)),
    Rule(
        "S21",
        "cells that would be carried are queried first",
        (Edit(PLAN, " | has_state(column, CellState.CARRIED)) & live", ") & live"),),
    ),
    Rule(
        "S22",
        "a value of another column type is a miss",
        (Edit(CACHE, "if cell.fingerprint != fingerprint:", "if False:"),),
    ),
    Rule(
        "S23",
        "a value that changed without an event expires",
        (Edit(CACHE, "if self.limits.ttl and self._now()", "if False and self._now()"),),
    ),
    Rule(
        "S24",
        "a declared filter turns the cache off",
        (Edit(OPTIONS, "not (unproven or hidden or self.keeps_history)", "not (unproven or self.keeps_history)"),),
    ),
    Rule(
        "S25",
        "rows are cached and queried by their identity",
        (
            Edit(
                IDENTITY,
                "    is_declared = bool(declared) and",
                "    declared = key_fields\n    is_declared = bool(declared) and",
            ),
        ),
    ),
    Rule(
        "S26",
        "keys whose texts do not identify rows are not cached",
        (Edit(IDENTITY, "return deterministic and all(_is_exact(", "return True or all(_is_exact("),),
    ),
    Rule(
        "S27",
        "an entry of another partition is a miss",
        (Edit(CACHE, "if cell.stamp.partition != stamp.partition or cell.generation", "if cell.generation"),),
    ),
    Rule(
        "S28",
        "cached values share no buffer",
        (
            Edit(
                RESELECT_CACHE,
                "        yield cells.take(pa.array([index])) if valid[index] else None\n",
                "        yield values.slice(int(rows[index]), 1) if valid[index] else None\n",
            ),
        ),
    ),
    Rule(
        "S29",
        "a row that could not be dropped is poisoned",
        (Edit(GUARDED_ROWS, "            self._poisoned.add(key)\n", "            pass\n"),),
    ),
    Rule(
        "S30",
        "time is monotonic",
        (
            Edit(
                RESELECT,
                "clock: Callable[[], float] = time.monotonic,",
                "clock: Callable[[], float] = time.time,",
            ),
        ),
    ),
    Rule(
        "S31",
        "a failed batch drops the rows that it touched",
        (
            Edit(
                CACHE_BATCH,
                '            self.cache.drop_row(RowKey(self._table, key), "failure")\n',
                "            pass\n",
            ),
        ),
    ),
    Rule(
        "S32",
        "the fold keeps a value beside a later placeholder",
        (Edit(FOLD, "    folded[is_known] = states[known][is_known]\n", ""),),
    ),
    Rule(
        "S33",
        "a null is written, an unchanged cell is kept",
        (
            Edit(
                MEMORY_TABLE,
                "        if states is None or states[index] in _KNOWN:\n",
                "        if (states is None or states[index] in _KNOWN) and (row is None or values[index].is_valid):\n",
            ),
        ),
    ),
    Rule(
        "S34",
        "hits are used if the row is missing",
        (
            Edit(
                COMPLETION, "        if len(cells.hit_rows):\n", "        if len(cells.hit_rows) and answer is None:\n"
            ),
        ),
    ),
    Rule(
        "S35",
        "a table has a quota",
        (
            Edit(
                "service/headrace/core/reselect/cache/rows.py",
                "while quota and self._table_bytes",
                "while False and self._table_bytes",
            ),
        ),
    ),
    Rule(
        "N1",
        "a replayed row is not yet committed",
        (
            Edit(
                POSTGRES,
                "pg_catalog.txid_status(id) FROM",
                "CASE WHEN pg_catalog.pg_last_wal_replay_lsn() IS NULL THEN pg_catalog.txid_status(id) "
                "ELSE 'committed' END FROM",
            ),
        ),
        stack=True,
    ),
    Rule(
        "N2",
        "a standby's snapshot is not queried",
        (
            Edit(
                POSTGRES,
                "pg_catalog.txid_status(id) FROM",
                "CASE WHEN pg_catalog.txid_visible_in_snapshot(id, pg_catalog.txid_current_snapshot()) "
                "THEN 'committed' ELSE 'in progress' END FROM",
            ),
        ),
        stack=True,
    ),
    Rule(
        "N3",
        "the current state of a standby that is behind is no answer",
        (Edit(ORACLE, "    if SCN_INVALID in codes and server.standby:\n", "    if False:\n"),),
    ),
    Rule(
        "N4",
        "a table with hidden rows is refused",
        (Edit(POSTGRES_CATALOG, "    if found.row_security:\n", "    if False:\n"),),
        stack=True,
    ),
    Rule(
        "N5",
        "a row inserted again keeps no cell",
        (
            Edit(
                FOLD,
                "fresh = np.where(deleted, images[starts], new[begin[last]])",
                "fresh = np.where(deleted, images[starts], False)",
            ),
        ),
    ),
    Rule(
        "N6",
        "the policy decides about a new row without a value",
        (Edit(COMPLETION, "    kept = bare & ~plan.unstored\n", "    kept = bare\n"),),
    ),
    Rule(
        "N7",
        "a key change carries cells without another source",
        (
            Edit(
                FOLD,
                "folded[action] = CellState.UNKNOWN if unknown else CellState.CARRIED",
                "folded[action] = CellState.UNKNOWN if unknown else CellState.UNCHANGED",
            ),
        ),
    ),
    Rule(
        "N8",
        "a cached null that contradicts an event is not served",
        (
            Edit(
                RESELECT_CACHE,
                "if hit is not None and (hit.value is not None or rules.serves_nulls):",
                "if hit is not None:",
            ),
        ),
    ),
    Rule(
        "N9",
        "an event that was not applied invalidates the cache",
        (
            Edit(
                MESSAGE_ROUTER,
                "                    self._reselect.cache.lose(message.topic, message.partition, message.offset)\n",
                "                    pass\n",
            ),
        ),
    ),
    Rule(
        "N10",
        "a truncated placeholder is distinguished from a value",
        (Edit(PLACEHOLDER, "if cut is not None and cut < len(self.text):", "if False:"),),
    ),
    Rule(
        "N11",
        "a time to live of 0 never expires",
        (Edit(CACHE, "if self.limits.ttl and self._now()", "if self._now()"),),
    ),
    Rule(
        "N12",
        "no hit from a newer position",
        (
            Edit(
                CACHE,
                "if cell.stamp.offset > stamp.offset or _goes_back(cell.stamp, stamp):",
                "if cell.stamp.offset > stamp.offset:",
            ),
        ),
    ),
    Rule(
        "N13",
        "another schema of a table invalidates its entries",
        (Edit(CACHE, '            self.drop_table(table, "schema")\n', "            pass\n"),),
    ),
    Rule(
        "N14",
        "the result of a query is a value",
        (Edit(COMPLETION, "        mask[read] = False\n", ""),),
    ),
)
