"""The SQL of the last state of each key of a history, which `headrace verify` compares with the source. Pure.

The events of a key are ordered as merges apply them (``merge.md`` section 2): by source position; an event without one
(a snapshot read) follows all events that arrived before it. Offsets order the arrival within a partition. Source times,
which never decrease within a partition here, order it across partitions. An event whose position was the highest one
already is an event that Debezium has sent again.

A key has no row if its last event is a delete, or if a truncate outranks it. A cell that the last event omits has the
value of the last event that contains it, unless the row began after that.

The rows stay in Spark, which shuffles them once and spills what exceeds its memory.

Tests: ``tests/contracts/history_suite.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace_connectors.lakehouse.merge import OFFSET, PARTITION, POSITION, SOURCE_TIME, TOPIC, staged_name
from headrace_connectors.lakehouse.schema import HISTORY_COLUMNS, VERSION_COLUMNS, quoted

_OPERATION, _UNAVAILABLE = (quoted(name) for name in HISTORY_COLUMNS.names[-2:])
_ARRIVED, _BEFORE, _PLACE, _BEGIN, _LAST, _FLOOR = (
    quoted(staged_name(name)) for name in ("arrived", "before", "place", "begin", "last", "floor")
)
_COORDINATE = f"{_ARRIVED}, {TOPIC}, {PARTITION}, {OFFSET}"


def last_states_sql(
    table: str, events: str, key_fields: Sequence[str], columns: Sequence[str], omitted: Collection[str]
) -> str:
    """Return the SELECT of the last state of each key: ``columns``, version, and the names of unavailable cells.

    ``events`` is ``table`` (both quoted), or some of its keys with all their events. ``omitted`` are the columns that
    events may omit. A null in a key column is a key of its own, whatever its last event is: the caller refuses it.
    """
    key = ", ".join(map(quoted, key_fields))
    names = list(dict.fromkeys([*key_fields, *columns]))
    data = ", ".join(map(quoted, names))
    found = {name: quoted(staged_name(f"found_{index}")) for index, name in enumerate(names) if name in omitted}
    own = ", ".join([*map(quoted, VERSION_COLUMNS.names), _OPERATION, _UNAVAILABLE])
    states = [
        f"max_by(struct({data}, {own}), {_PLACE}) AS {_LAST}",
        f"max({_PLACE}) AS {_PLACE}",
        f"max({_PLACE}) FILTER (WHERE {_OPERATION} IN ('c', 'r', 'd')) AS {_BEGIN}",
        *(
            f"max_by(struct({_PLACE} AS place, {quoted(name)} AS cell), {_PLACE}) "
            f"FILTER (WHERE NOT {_omits(_UNAVAILABLE, name)} AND NOT {_OPERATION} <=> 'd') AS {alias}"
            for name, alias in found.items()
        ),
    ]
    cells = [
        f"{_cell(name, found[name])} AS {quoted(name)}" if name in found else f"{_LAST}.{quoted(name)}"
        for name in names
    ]
    version = [f"{_PLACE}.position AS {POSITION}", *(f"{_LAST}.{column}" for column in (TOPIC, PARTITION, OFFSET))]
    keyless = " OR ".join(f"{_LAST}.{quoted(name)} IS NULL" for name in key_fields)
    return f"""
SELECT {", ".join([*cells, *version])}, {_LAST}.{SOURCE_TIME}, {_LAST}.{_UNAVAILABLE}
FROM (
  SELECT {", ".join(states)}
  FROM (
    SELECT *, struct(coalesce({POSITION}, {_BEFORE}) AS position, {_COORDINATE}) AS {_PLACE}
    FROM (
      SELECT *, max({POSITION}) OVER (
        PARTITION BY {key} ORDER BY {_COORDINATE} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS {_BEFORE}
      FROM (
        SELECT {data}, {own}, max({SOURCE_TIME}) OVER (
          PARTITION BY {key}, {TOPIC}, {PARTITION} ORDER BY {OFFSET}
        ) AS {_ARRIVED}
        FROM (
          SELECT /*+ REPARTITION({key}) */ * FROM {events} AS e WHERE NOT {_OPERATION} <=> 't'
        ) AS e
      ) AS e
    ) AS e
    WHERE {POSITION} IS NULL OR NOT {POSITION} <=> {_BEFORE}
  ) AS e
  GROUP BY {key}
) AS e
CROSS JOIN (
  SELECT max(struct({POSITION}, {TOPIC}, {PARTITION}, {OFFSET}, {SOURCE_TIME})) AS {_FLOOR}
  FROM {table} AS t WHERE {_OPERATION} = 't'
) AS t
WHERE {keyless} OR (NOT {_LAST}.{_OPERATION} <=> 'd' AND ({_FLOOR} IS NULL OR {_outranks_floor()}))"""


def omitted_columns_sql(table: str) -> str:
    """Return the SELECT of the columns that some event of ``table`` omits."""
    return f"SELECT DISTINCT explode({_UNAVAILABLE}) AS name FROM {table}"


def _omits(unavailable: str, name: str) -> str:
    literal = "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"coalesce(array_contains({unavailable}, {literal}), false)"


def _cell(name: str, found: str) -> str:
    """The cell of the last event, or of the last event of the row that contains it."""
    known = f"IF({_BEGIN} IS NULL OR {found}.place >= {_BEGIN}, {found}.cell, NULL)"
    return f"IF({_omits(f'{_LAST}.{_UNAVAILABLE}', name)}, {known}, {_LAST}.{quoted(name)})"


def _outranks_floor() -> str:
    """The condition that the row is newer than the last truncate: by position, or by arrival if it has none."""
    later = (
        f"IF({_LAST}.{TOPIC} <=> {_FLOOR}.{TOPIC} AND {_LAST}.{PARTITION} <=> {_FLOOR}.{PARTITION}, "
        f"{_LAST}.{OFFSET} > {_FLOOR}.{OFFSET}, {_LAST}.{SOURCE_TIME} > {_FLOOR}.{SOURCE_TIME})"
    )
    higher = f"coalesce({_PLACE}.position > {_FLOOR}.{POSITION}, false)"
    by_position = f"{_LAST}.{POSITION} IS NOT NULL AND {_FLOOR}.{POSITION} IS NOT NULL"
    return f"IF({by_position}, {higher}, {later} OR {higher})"
