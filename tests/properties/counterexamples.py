"""Compares the tables that workers write with the model, and reduces a failing delivery to the parts that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from properties.deliveries import Delivery, smallest, untroubled
from properties.reference_model import Rows
from properties.workers import NO_OPTIONS, expected, written, written_or_left_out

from headrace.core.model.errors import Fatal
from headrace.ports import TableOptions
from headrace_dev.memory import MemoryLakehouse

Tables = Mapping[int, Rows]


def check(delivery: Delivery, *, options: TableOptions = NO_OPTIONS, what: str = "") -> None:
    """Fail with the smallest failing delivery if the memory tables differ from the model's at the end."""

    def difference(of: Delivery) -> str:
        return differing_cells(written(of, MemoryLakehouse(), options=options), expected(of))

    _search(delivery, difference, what)


def check_complete(delivery: Delivery) -> None:
    """The same with reselect.unresolved.insert.mode=fail, for deliveries that complete all cells without faults."""
    assert _complete(delivery)

    def difference(of: Delivery) -> str:
        if not _complete(of):
            return ""
        try:
            return differing_cells(written(of, MemoryLakehouse(), insert_mode="auto"), expected(of))
        except Fatal as error:
            return str(error)

    _search(delivery, difference)


def _complete(delivery: Delivery) -> bool:
    _, rest = written_or_left_out(untroubled(delivery), MemoryLakehouse())
    return len(rest) == len(delivery.arrivals)


def _search(delivery: Delivery, difference: Callable[[Delivery], str], what: str = "") -> None:
    if difference(delivery):
        found = smallest(delivery, lambda smaller: bool(difference(smaller)))
        raise AssertionError(f"{what}\n{story(found)}\n{difference(found)}")


def differing_cells(found: Tables, wanted: Tables) -> str:
    """The cells that differ, one per line."""
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
    """The arrivals, one per line, and the events between them."""
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
