"""The rule behind each case of ``reselect.md`` section 6, as the change to the sources that removes it.

A comment ``# proven: S3`` marks the line of the rule of case S3; cases of one line share its marker.
``take_out.py`` applies the changes one by one and requires that the case's tests fail. A rule that two lines enforce is
removed from both. ``tests/unit/test_reselect_cases.py`` checks that every change applies, so that no rule disappears
from this table unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass

from support.repository.changed_sources import Edit, also, always, becoming, dropped, never, otherwise, value, without


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


_NO_DROP_AT_ASSIGNMENT = Edit("S6-assigned", dropped)
_ANY_GENERATION = Edit("S27", without(-1))

RULES_OF_CASES = (
    Rule(
        "S1",
        "a null of an event replaces the cached value",
        (Edit("S12", becoming("batch.for_row", "value is None or batch.for_row")),),
    ),
    Rule("S1b", "a null of a large object is not remembered", (Edit("S20", becoming(" or silent", "")),)),
    Rule("S2", "a delete drops the row from the cache", (Edit("S4", without(0)),)),
    Rule("S3", "a truncate drops the table from the cache", (Edit("S3", dropped),)),
    Rule("S4", "deletes and new incarnations drop the row", (Edit("S4", value("()")),)),
    Rule("S5", "a new incarnation drops the row", (Edit("S4", without(-1)),)),
    Rule(
        "S6",
        "a revoked or assigned partition drops its entries",
        (_NO_DROP_AT_ASSIGNMENT, _ANY_GENERATION, Edit("S6-revoked", dropped)),
    ),
    Rule("S7", "a put of an earlier assignment is rejected", (Edit("S7", never),)),
    Rule("S8", "an answer is rejected if a later event has put or dropped", (Edit("S8", otherwise),)),
    Rule("S9", "an assignment voids what was cached before it", (_NO_DROP_AT_ASSIGNMENT, _ANY_GENERATION)),
    Rule("S10", "topics that hide events are not cached", (Edit("S10", without(-1)),)),
    Rule("S11", "an entry ahead of the event is a miss", (Edit("S11", without(0)),)),
    Rule("S12", "a value of an event replaces what a query brought", (Edit("S12", dropped),)),
    Rule(
        "S13",
        "a missing row has no values",
        (Edit("S13", becoming("answer.found & request.needs[:, number]", "np.ones(len(answer.found))")),),
    ),
    Rule("S14", "a history reselects no later value", (Edit("S14", dropped),)),
    Rule(
        "S15",
        "a standby is queried for the status of the event's transaction",
        (Edit("S15", value("0.0")),),
        stack=True,
    ),
    Rule("S16", "a read waits for a transaction in progress", (Edit("S16", never),), stack=True),
    Rule(
        "S17",
        "the begin of a snapshot invalidates cached values",
        (Edit("S17-table", dropped), Edit("S17-all", dropped)),
    ),
    Rule("S18", "every form of the placeholder is detected", (Edit("S18", becoming(", self.uuid", "")),)),
    Rule("S19", "a null that may hide a value is UNKNOWN", (Edit("S19", value("CellState.NULL")),)),
    Rule(
        "S20", "large objects that change without an event are not cached", (Edit("S20", becoming(" or silent", "")),)
    ),
    Rule(
        "S21",
        "cells that would be carried are queried first",
        (Edit("S21", becoming(" | has_state(column, CellState.CARRIED)", "")),),
    ),
    Rule("S22", "a value of another column type is a miss", (Edit("S22", never),)),
    Rule("S23", "a value that changed without an event expires", (Edit("S23", never),)),
    Rule("S24", "a declared filter turns the cache off", (Edit("S24", becoming(" or hidden", "")),)),
    Rule("S25", "rows are cached and queried by their identity", (Edit("S25", value("key_fields")),)),
    Rule("S26", "keys whose texts do not identify rows are not cached", (Edit("S26", always),)),
    Rule("S27", "an entry of another partition is a miss", (Edit("S27", without(0)),)),
    Rule(
        "S28",
        "cached values share no buffer",
        (Edit("S28", becoming("cells.take(pa.array([index]))", "values.slice(int(rows[index]), 1)")),),
    ),
    Rule("S29", "a row that could not be dropped is poisoned", (Edit("S29", dropped),)),
    Rule("S30", "time is monotonic", (Edit("S30", becoming("time.monotonic", "time.time")),)),
    Rule("S31", "a failed batch drops the rows that it touched", (Edit("S31", dropped),)),
    Rule("S32", "the fold keeps a value beside a later placeholder", (Edit("S32", dropped),)),
    Rule(
        "S33",
        "a null is written, an unchanged cell is kept",
        (Edit("S33", also("row is None or values[index].is_valid")),),
    ),
    Rule("S34", "hits are used if the row is missing", (Edit("S34", also("answer is None")),)),
    Rule("S35", "a table has a quota", (Edit("S35", never),)),
    Rule(
        "N1",
        "a replayed row is not yet committed",
        (
            Edit(
                "N1",
                becoming(
                    "pg_catalog.txid_status(id) FROM",
                    "CASE WHEN pg_catalog.pg_last_wal_replay_lsn() IS NULL THEN pg_catalog.txid_status(id) "
                    "ELSE 'committed' END FROM",
                ),
            ),
        ),
        stack=True,
    ),
    Rule(
        "N2",
        "a standby's snapshot is not queried",
        (
            Edit(
                "N1",
                becoming(
                    "pg_catalog.txid_status(id) FROM",
                    "CASE WHEN pg_catalog.txid_visible_in_snapshot(id, pg_catalog.txid_current_snapshot()) "
                    "THEN 'committed' ELSE 'in progress' END FROM",
                ),
            ),
        ),
        stack=True,
    ),
    Rule("N3", "the current state of a standby that is behind is no answer", (Edit("N3", never),)),
    Rule("N4", "a table with hidden rows is refused", (Edit("N4", never),), stack=True),
    Rule("N5", "a row inserted again keeps no cell", (Edit("N5", becoming("new[begin[last]]", "False")),)),
    Rule("N6", "the policy decides about a new row without a value", (Edit("N6", without(-1)),)),
    Rule(
        "N7",
        "a key change carries cells without another source",
        (Edit("N7", becoming("CellState.CARRIED", "CellState.UNCHANGED")),),
    ),
    Rule("N8", "a cached null that contradicts an event is not served", (Edit("N8", without(-1)),)),
    Rule("N9", "an event that was not applied invalidates the cache", (Edit("N9", dropped),)),
    Rule("N10", "a truncated placeholder is distinguished from a value", (Edit("N10", never),)),
    Rule("N11", "a time to live of 0 never expires", (Edit("S23", without(0)),)),
    Rule("N12", "no hit from a newer position", (Edit("S11", without(-1)),)),
    Rule("N13", "another schema of a table invalidates its entries", (Edit("N13", dropped),)),
    Rule("N14", "the result of a query is a value", (Edit("N14", dropped),)),
)
