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
from headrace_connectors.lakehouse.merge import MergeColumns, staged, staged_names, text_literal
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
    needs_target = _any_state(actions, CellState.UNCHANGED)
    if _any_state(actions, CellState.CARRIED).any() or not needs_target.any():
        return [stage(actions, schema, soft=soft)]
    known = np.flatnonzero(~needs_target)
    if len(known) < SPLIT_ROWS:
        return [stage(actions, schema, soft=soft)]
    parts = (np.flatnonzero(needs_target), known)
    return [stage(actions, schema, part, soft=soft) for part in parts]


def stage(actions: Actions, schema: pa.Schema, index: Ints | None = None, *, soft: bool = False) -> StagedActions:
    """Return the rows at ``index`` (all by default)."""
    picked = _Picked(actions, np.arange(len(actions)) if index is None else index)
    shape = _shape(picked, schema, soft)
    arrays = [in_lake_type(picked.values(column), column.name, schema) for column in actions.columns]
    arrays += [_staged_array(picked, shape, schema, name) for name in staged_names(shape)]
    return StagedActions(pa.table(arrays, [*shape.columns, *staged_names(shape)]), shape)


def stage_keys(actions: Actions, schema: pa.Schema, *, soft: bool = False) -> StagedActions:
    """Return the keys of a batch, each with its canonical text."""
    whole = _Picked(actions, np.arange(len(actions)))
    fields = actions.key_fields
    arrays = [in_lake_type(whole.values(column), column.name, schema) for column in whole.key_columns()]
    shape = MergeColumns("", fields, fields, key_range=_key_range(fields[0], arrays[0]), soft=soft)
    return StagedActions(pa.table([*arrays, actions.key], [*fields, staged("key")]), shape)


class _Picked:
    """Return some rows of a batch; if they are all rows, without a copy."""

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

    def key_columns(self) -> list[Column]:
        columns = {column.name: column for column in self.actions.columns}
        return [columns[name] for name in self.actions.key_fields]


def _any_state(actions: Actions, state: CellState) -> Bools:
    found = np.zeros(len(actions), np.bool_)
    for column in actions.columns:
        if column.states is not None:
            found |= (column.states == state) & ~actions.delete
    return found


def _shape(picked: _Picked, schema: pa.Schema, soft: bool) -> MergeColumns:
    actions, index = picked.actions, picked.index
    names = tuple(column.name for column in actions.columns)
    first_key = picked.key_columns()[0]
    keys = in_lake_type(picked.values(first_key), first_key.name, schema)
    positioned = (actions.version.position[index] != b"") & (actions.gates.position[index] != b"")
    return MergeColumns(
        topic=actions.version.topic,
        key_fields=actions.key_fields,
        columns=names,
        absent=tuple(name for name in schema.names if name not in names),
        kept=_columns_with(picked, CellState.UNCHANGED),
        carried=_columns_with(picked, CellState.CARRIED),
        key_range=_key_range(first_key.name, keys),
        positioned=bool(positioned.all()),
        by_arrival=bool(actions.gates.by_arrival[index].any()),
        deletes=bool(actions.delete[index].any()),
        upserts=not actions.delete[index].all(),
        soft=soft,
    )


def _columns_with(picked: _Picked, state: CellState) -> frozenset[int]:
    columns = enumerate(picked.actions.columns)
    return frozenset(number for number, column in columns if picked.has_state(column, state).any())


def in_lake_type(values: pa.Array, name: str, schema: pa.Schema) -> pa.Array:
    if name not in schema.names:
        raise Fatal(f"column {name!r}: the table does not have it; call evolve first")
    data_type = schema.field(name).type
    return values if values.type == data_type else values.cast(data_type)


# -- staged columns ---------------------------------------------------------------------------------------------------


def _staged_array(picked: _Picked, shape: MergeColumns, schema: pa.Schema, name: str) -> pa.Array:
    actions, index = picked.actions, picked.index
    if name in VERSION_COLUMNS.names:
        return _version_array(actions.version, index, name)
    purpose, _, number = name.removeprefix(staged("")).rpartition("_")
    if purpose in ("keep", "carry"):
        state = CellState.UNCHANGED if purpose == "keep" else CellState.CARRIED
        return pa.array(picked.has_state(actions.columns[int(number)], state))
    if purpose == "old_key":
        return _old_key(picked, int(number), schema)
    if purpose == "old":
        return _old_versions(picked)
    return _row_array(picked, shape, name)


def _row_array(picked: _Picked, shape: MergeColumns, name: str) -> pa.Array:
    """Return a staged column with the metadata of rows."""
    actions, index = picked.actions, picked.index
    first = actions.gates.first
    match name.removeprefix(staged("")):
        case "delete":
            return pa.array(actions.delete[index])
        case "first_position":
            return _positions(actions.gates.position[index])
        case "by_arrival":
            return pa.array(actions.gates.by_arrival[index])
        case "first_partition" | "first_offset" | "first_source_time" as column:
            return _version_array(first, index, staged(column.removeprefix("first_")))
        case "fresh":
            return pa.array(actions.fresh[index])
        case "keeps":
            return pa.array(_any_state(actions, CellState.UNCHANGED)[index])
        case "carries":
            return pa.array(_any_state(actions, CellState.CARRIED)[index])
        case "row":
            return pa.array(np.arange(len(picked), dtype=np.int32))
    raise KeyError(name)


def _version_array(versions: Versions, index: Ints, name: str) -> pa.Array:
    match name.removeprefix(staged("")):
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


def _old_key(picked: _Picked, index: int, schema: pa.Schema) -> pa.Array:
    column = picked.key_columns()[index]
    return in_lake_type(column.values.take(_origins(picked)), column.name, schema)


def _old_versions(picked: _Picked) -> pa.Array:
    """The versions of the stored rows that supply carried cells, in the form of ``merge.py``; null for any version."""
    carried = picked.actions.carried
    keys = picked.actions.key.take(_origins(picked)).to_pylist()
    versions = [None if carried is None else carried.versions.get(key) for key in keys]
    texts = [each and f"{each.position.decode()}/{each.partition}/{each.offset}" for each in versions]
    return pa.array(texts, pa.string())


def _origins(picked: _Picked) -> pa.Array:
    """The indexes of the actions under whose keys the rows that supply carried cells are stored; null without one."""
    carried = picked.actions.carried
    if carried is None:
        return pa.nulls(len(picked), pa.int64())
    origin = carried.origin[picked.index]
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
