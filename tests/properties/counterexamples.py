"""Compares what workers write with the model, and says of a difference only what it needs."""

from __future__ import annotations

from collections.abc import Mapping

from properties.deliveries import Delivery, smallest
from properties.reference_model import Rows
from properties.workers import NO_OPTIONS, expected, written

from headrace.ports import TableOptions
from headrace_connectors.memory import MemoryLakehouse

Tables = Mapping[int, Rows]


def check(delivery: Delivery, *, options: TableOptions = NO_OPTIONS, what: str = "") -> None:
    """Fail with the smallest delivery that still differs if memory tables do not end as the model's."""
    if not _differs(delivery, options):
        return
    found = smallest(delivery, lambda smaller: _differs(smaller, options))
    difference = told(written(found, MemoryLakehouse(), options=options), expected(found))
    raise AssertionError(f"{what}\n{story(found)}\n{difference}")


def _differs(delivery: Delivery, options: TableOptions) -> bool:
    return written(delivery, MemoryLakehouse(), options=options) != expected(delivery)


def told(found: Tables, wanted: Tables) -> str:
    """The cells that differ, one a line."""
    lines = []
    for table in sorted({*found, *wanted}):
        ours, theirs = found.get(table, {}), wanted.get(table, {})
        lines += [
            f"table {table} key {key}: is {ours.get(key)}, should be {theirs.get(key)}"
            for key in sorted({*ours, *theirs})
            if ours.get(key) != theirs.get(key)
        ]
    return "\n".join(lines)


def story(delivery: Delivery) -> str:
    """The arrivals, one a line, and what happened between them."""
    lines = [f"deaths {list(delivery.deaths)}, moves {set(delivery.moves)}, lost commits {set(delivery.lost)}"]
    for index, (event, (topic, partition), offset, _) in enumerate(delivery.arrivals):
        cuts = [life[index] for life in delivery.cuts]
        cells = {name: state.name if value is None else value for name, (state, value) in event.cells.items()}
        lines.append(
            f"{index}: table {event.table} {event.operation.name} {event.key} {cells} "
            f"{'' if event.old_key is None else f'from key {event.old_key} '}{'moves away ' if event.moved else ''}"
            f"at {event.version.position.decode()} {topic}-{partition}:{offset} time {event.version.source_time}; "
            f"fetches end {[cut.fetch for cut in cuts]}, tables closed {[cut.closed for cut in cuts]}"
        )
    return "\n".join(lines)
