"""Actions as rows for Spark: which rows go into one MERGE, in which columns. Pure.

If only some rows of a batch keep stored cells, the batch is staged in two parts, because a MERGE that refers to the
target's columns reads them for every row. Small batches are not divided: a second commit costs more than it saves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.actions import Actions
from headrace.core.model.errors import Fatal
from headrace.core.model.events import CellState, Column, Versions
from headrace_connectors.lakehouse.merge import MergeColumns, staged_name, staged_names, text_literal
from headrace_connectors.lakehouse.schema import VERSION_COLUMNS, quoted, sql_type

SPLIT_ROWS = 5000
"""The number of rows without kept cells from which they are written by a separate MERGE."""

_MAX_RANGE_TEXT = 256  # longer keys make longer statements than they save reading
_RANGE_STEPS = 16

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StagedActions:
    """Rows for one statement, and the properties that its text depends on."""

    rows: pa.Table
    shape: MergeColumns


def stages(actions: Actions, schema: pa.Schema, *, soft: bool = False) -> list[StagedActions]:
    """Return the statements for a batch, in order. ``schema`` contains the table's data columns in lake types.

    ``soft`` is whether deleted rows stay, see ``MergeColumns``.
    """
    needs_target = has_state(actions, CellState.UNCHANGED)
    if has_state(actions, CellState.CARRIED).any() or not needs_target.any():
        return [stage(actions, schema, soft=soft)]
    complete = np.flatnonzero(~needs_target)
    if len(complete) < SPLIT_ROWS:
        return [stage(actions, schema, soft=soft)]
    return [stage(actions, schema, part, soft=soft) for part in (np.flatnonzero(needs_target), complete)]


def stage(actions: Actions, schema: pa.Schema, index: Ints | None = None, *, soft: bool = False) -> StagedActions:
    """Return the rows at ``index`` (all by default)."""
    rows = _Rows(actions, np.arange(len(actions)) if index is None else index)
    index = rows.index
    names = tuple(column.name for column in actions.columns)
    first_key = rows.key_columns()[0]
    keys = in_lake_type(rows.values(first_key), first_key.name, schema)
    positioned = (actions.version.position[index] != b"") & (actions.gates.position[index] != b"")
    shape = MergeColumns(
        topic=actions.version.topic,
        key_fields=actions.key_fields,
        columns=names,
        absent=tuple(name for name in schema.names if name not in names),
        kept=rows.columns_with(CellState.UNCHANGED),
        carried=rows.columns_with(CellState.CARRIED),
        key_range=_key_range(first_key.name, keys),
        positioned=bool(positioned.all()),
        by_arrival=bool(actions.gates.by_arrival[index].any()),
        deletes=bool(actions.delete[index].any()),
        upserts=not actions.delete[index].all(),
        soft=soft,
    )
    arrays = [in_lake_type(rows.values(column), column.name, schema) for column in actions.columns]
    arrays += [_staged_array(rows, schema, name) for name in staged_names(shape)]
    return StagedActions(pa.table(arrays, [*shape.columns, *staged_names(shape)]), shape)


def stage_keys(actions: Actions, schema: pa.Schema, *, soft: bool = False) -> StagedActions:
    """Return the keys of a batch, each with its canonical text."""
    rows = _Rows(actions, np.arange(len(actions)))
    fields = actions.key_fields
    arrays = [in_lake_type(rows.values(column), column.name, schema) for column in rows.key_columns()]
    shape = MergeColumns("", fields, fields, key_range=_key_range(fields[0], arrays[0]), soft=soft)
    return StagedActions(pa.table([*arrays, actions.key], [*fields, staged_name("key")]), shape)


class _Rows:
    """The rows of a batch at ``index``; if they are all rows, without a copy."""

    def __init__(self, actions: Actions, index: Ints) -> None:
        self.actions = actions
        self.index = index
        self._all = len(index) == len(actions)

    def __len__(self) -> int:
        return len(self.index)

    def values(self, column: Column) -> pa.Array:
        return column.values if self._all else column.values.take(pa.array(self.index))

    def has_state(self, column: Column, state: CellState) -> Bools:
        if column.states is None:
            return np.zeros(len(self), np.bool_)
        mask: Bools = column.states[self.index] == state
        return mask

    def columns_with(self, state: CellState) -> frozenset[int]:
        columns = enumerate(self.actions.columns)
        return frozenset(number for number, column in columns if self.has_state(column, state).any())

    def key_columns(self) -> list[Column]:
        columns = {column.name: column for column in self.actions.columns}
        return [columns[name] for name in self.actions.key_fields]


def has_state(actions: Actions, state: CellState) -> Bools:
    """Return the upserts that have a cell in a state."""
    mask = np.zeros(len(actions), np.bool_)
    for column in actions.columns:
        if column.states is not None:
            mask |= (column.states == state) & ~actions.delete
    return mask


def in_lake_type(values: pa.Array, name: str, schema: pa.Schema) -> pa.Array:
    if name not in schema.names:
        raise Fatal(f"column {name!r}: the table does not have it; call evolve first")
    data_type = schema.field(name).type
    return values if values.type == data_type else values.cast(data_type)


# -- staged columns ---------------------------------------------------------------------------------------------------


def _staged_array(rows: _Rows, schema: pa.Schema, name: str) -> pa.Array:
    """Return one of the columns of ``staged_names``."""
    actions, index = rows.actions, rows.index
    if name in VERSION_COLUMNS.names:
        return version_array(actions.version, index, name)
    purpose = name.removeprefix(staged_name(""))
    prefix, _, number = purpose.rpartition("_")
    if prefix in ("keep", "carry"):
        state = CellState.UNCHANGED if prefix == "keep" else CellState.CARRIED
        return pa.array(rows.has_state(actions.columns[int(number)], state))
    if prefix == "old_key":
        column = rows.key_columns()[int(number)]
        return in_lake_type(column.values.take(_origins(rows)), column.name, schema)
    match purpose:
        case "old_version":
            # The versions of the stored rows that supply carried cells, as merge.py compares them; null for any.
            keys = actions.key.take(_origins(rows)).to_pylist()
            stored = {} if actions.carried is None else actions.carried.versions
            versions = map(stored.get, keys)
            return pa.array([v and f"{v.position.decode()}/{v.partition}/{v.offset}" for v in versions], pa.string())
        case "delete":
            return pa.array(actions.delete[index])
        case "first_position":
            return _positions(actions.gates.position[index])
        case "by_arrival":
            return pa.array(actions.gates.by_arrival[index])
        case "first_partition" | "first_offset" | "first_source_time":
            return version_array(actions.gates.first, index, staged_name(purpose.removeprefix("first_")))
        case "fresh":
            return pa.array(actions.fresh[index])
        case "keeps":
            return pa.array(has_state(actions, CellState.UNCHANGED)[index])
        case "carries":
            return pa.array(has_state(actions, CellState.CARRIED)[index])
        case "row":
            return pa.array(np.arange(len(rows), dtype=np.int32))
    raise KeyError(name)


def version_array(versions: Versions, index: Ints, name: str) -> pa.Array:
    """Return one of ``VERSION_COLUMNS``, except for the topic, at ``index``."""
    match name.removeprefix(staged_name("")):
        case "position":
            return _positions(versions.position[index])
        case "partition":
            return pa.array(versions.partition[index], pa.int32())
        case "offset":
            return pa.array(versions.offset[index], pa.int64())
        case "source_time":
            return pa.array(versions.source_time[index], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    raise KeyError(name)


def _positions(positions: npt.NDArray[np.bytes_]) -> pa.Array:
    """Positions as text, with null for no position."""
    return pa.array(positions, pa.binary(), mask=positions == b"").cast(pa.string())


def _origins(rows: _Rows) -> pa.Array:
    """The indexes of the actions under whose keys the rows that supply carried cells are stored; null without one."""
    carried = rows.actions.carried
    if carried is None:
        return pa.nulls(len(rows), pa.int64())
    origin = carried.origin[rows.index]
    return pa.array(origin, pa.int64(), mask=origin < 0)


# -- key range --------------------------------------------------------------------------------------------------------


def _key_range(name: str, keys: pa.Array) -> str:
    """Return a condition by which the scan skips files outside the batch's key range, or "" if the type allows none."""
    data_type = keys.type
    if len(keys) == 0 or not (
        pa.types.is_integer(data_type) or pa.types.is_string(data_type) or pa.types.is_date32(data_type)
    ):
        return ""
    extremes = pc.min_max(keys)
    low, high = extremes["min"], extremes["max"]
    if pa.types.is_string(data_type):
        first, last = low.as_py(), high.as_py()
        if max(len(first), len(last)) > _MAX_RANGE_TEXT:
            return ""
        return f"t.{quoted(name)} BETWEEN {text_literal(first)} AND {text_literal(last)}"
    if pa.types.is_date32(data_type):
        low, high = low.cast(pa.int32()), high.cast(pa.int32())
    least, most = _round_outwards(low.as_py(), high.as_py(), data_type.bit_width)
    if pa.types.is_date32(data_type):
        return f"t.{quoted(name)} BETWEEN date_from_unix_date({least}) AND date_from_unix_date({most})"
    first, last = (f"CAST({text_literal(str(bound))} AS {sql_type(data_type)})" for bound in (least, most))
    return f"t.{quoted(name)} BETWEEN {first} AND {last}"


def _round_outwards(low: int, high: int, bits: int) -> tuple[int, int]:
    """Round bounds so that batches over the same keys have the same: Spark compiles a statement's numbers into code.

    Code that is new for every batch is always compiled again.
    """
    step = 1 << max(0, ((high - low) // _RANGE_STEPS).bit_length())
    limit = 1 << (bits - 1)
    return max(low // step * step, -limit), min((high // step + 1) * step - 1, limit - 1)
