"""The last state of each key of a history, event by event: what ``lakehouse/last_states.py`` has to return."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.core.model.events import UNVERSIONED, RowVersion, outranks
from headrace_connectors.lakehouse.schema import HISTORY_COLUMNS, VERSION_COLUMNS

_OPERATION, _UNAVAILABLE = HISTORY_COLUMNS.names[-2:]
_POSITION = VERSION_COLUMNS.names[0]

Cells = dict[str, pa.Scalar]
Key = tuple[pa.Scalar, ...]


def last_states(events: Sequence[Cells], key_fields: Sequence[str]) -> dict[Key, Cells]:
    """Return the last states by key. ``events`` are in the order of their arrival.

    A state has the version of the last event, with the highest position before it if it has none.
    """
    of_key: dict[Key, list[Cells]] = defaultdict(list)
    floor = UNVERSIONED
    for event in events:
        if event[_OPERATION].as_py() != "t":
            of_key[tuple(event[name] for name in key_fields)].append(event)
        elif outranks(_version(event), floor):
            floor = _version(event)
    states = {}
    for key, of_one in of_key.items():
        last, state = _last_state(of_one)
        is_incomplete = not all(cell.is_valid for cell in key)
        if is_incomplete or (last[_OPERATION].as_py() != "d" and _outranks(_version(last), _version(state), floor)):
            states[key] = state
    return states


def _last_state(events: Sequence[Cells]) -> tuple[Cells, Cells]:
    """Return the last event and the state of the row after it."""
    highest, ordered = b"", []
    for arrival, event in enumerate(events):
        position = _version(event).position
        if not position or position != highest:  # an event of the highest position was sent again
            ordered.append((position or highest, arrival, event))
            highest = max(position, highest)
    ordered.sort(key=lambda place: place[:2])
    known: Cells = {}
    for _, _, event in ordered:
        if event[_OPERATION].as_py() in ("c", "r", "d"):
            known = {}
        omitted = event[_UNAVAILABLE].as_py() or ()
        known |= {name: cell for name, cell in event.items() if name not in omitted}
    position, _, last = ordered[-1]
    state = {name: known.get(name, pa.scalar(None, cell.type)) for name, cell in last.items()}
    state |= {name: last[name] for name in HISTORY_COLUMNS.names}
    return last, state | {_POSITION: pa.scalar(position.decode() or None, pa.string())}


def _outranks(last: RowVersion, state: RowVersion, floor: RowVersion) -> bool:
    """Return whether a row is newer than the last truncate. A read has no position, and the row perhaps one."""
    if last.position and floor.position:
        return last.position > floor.position
    return outranks(replace(last, position=b""), floor) or bool(floor.position and state.position > floor.position)


def _version(cells: Mapping[str, pa.Scalar]) -> RowVersion:
    position, topic, partition, offset, source_time = (cells[name] for name in VERSION_COLUMNS.names)
    time: Any = source_time.cast(pa.int64()).as_py()
    return RowVersion((position.as_py() or "").encode(), topic.as_py(), partition.as_py(), offset.as_py(), time)
