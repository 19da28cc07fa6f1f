"""Positions are texts that sort in the order of the source's log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.model.errors import BadRecord
from headrace.core.model.events import NO_POSITION
from headrace.core.model.positions import NO_FORMAT, POSITION_FORMATS, position_format, positions

COUNT = st.integers(0, 2**63 - 1)
SCN = st.integers(0, 10**38 - 1)
LSN_PARTS = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1))
Order = tuple[Any, ...]
Fields = tuple[Any, ...]


def _binlog(order: Order) -> Fields:
    """Return file, position and row; file numbers have six digits or more, as in ``mysql-bin.1000000``."""
    return f"my.bin-1.{order[0]:06d}", order[1], order[2]


def _oracle(order: Order) -> Fields:
    return str(order[0]), order[1]


def _log_sequence_number(order: Order) -> str:
    return f"{order[0]:08x}:{order[1]:08x}:{order[2]:04x}"


def _sql_server(order: Order) -> Fields:
    return _log_sequence_number(order[0]), _log_sequence_number(order[1]), order[2]


BINLOG = (st.tuples(st.integers(0, 2**31), COUNT, st.integers(0, 2**31)), _binlog)
SOURCES: dict[str, tuple[st.SearchStrategy[Order], Callable[[Order], Fields]]] = {
    "postgresql": (st.tuples(COUNT), tuple),
    "mysql": BINLOG,
    "mariadb": BINLOG,
    "oracle": (st.tuples(SCN, COUNT), _oracle),
    "sqlserver": (st.tuples(LSN_PARTS, LSN_PARTS, st.integers(0, 2**63 - 1)), _sql_server),
}
"""By connector: the numbers that order its changes, and the fields of its source block that contain them."""


def texts(connector: str, fields: list[Fields], epoch: int = 0) -> list[bytes]:
    columns = list(zip(*fields, strict=True))
    found: list[bytes] = positions(position_format(connector), epoch, columns, len(fields)).tolist()
    return found


def test_every_format_is_tested() -> None:
    """Every connector with a position format has an order in ``SOURCES``."""
    assert POSITION_FORMATS.keys() == SOURCES.keys()


@pytest.mark.parametrize("connector", SOURCES)
@given(data=st.data())
def test_positions_sort_as_their_source(connector: str, data: st.DataObject) -> None:
    """Positions compare like the source's numbers, with any number of digits."""
    orders, fields = SOURCES[connector]
    left, right = data.draw(orders), data.draw(orders)
    first, second = texts(connector, [fields(left), fields(right)])
    assert ((first > second) - (first < second)) == ((left > right) - (left < right))


@pytest.mark.parametrize("connector", SOURCES)
@given(data=st.data(), epoch=st.integers(0, 99998))
def test_a_higher_epoch_outranks_every_position(connector: str, data: st.DataObject, epoch: int) -> None:
    """A position of a higher epoch sorts above all of a lower one; all positions of a connector have one width."""
    orders, fields = SOURCES[connector]
    left, right = data.draw(orders), data.draw(orders)
    (before,), (after,) = texts(connector, [fields(left)], epoch), texts(connector, [fields(right)], epoch + 1)
    assert after > before
    assert len(after) == len(before) == position_format(connector).width


@pytest.mark.parametrize(
    ("connector", "fields", "text"),
    [
        ("postgresql", (7,), b"00000.00000000000000000007"),
        ("mariadb", ("mybin.000002", 551, 0), b"00000.0000000002.00000000000000000551.0000000000"),
        ("oracle", ("5160", 1), b"00000.%038d.%020d" % (5160, 1)),
        ("oracle", (5160, 1), b"00000.%038d.%020d" % (5160, 1)),
        (
            "sqlserver",
            ("0000002A:00000b68:0003", "0000002a:00000b68:0002", 2),
            b"00000.0000002a:00000b68:0003.0000002a:00000b68:0002.%020d" % 2,
        ),
    ],
)
def test_the_stored_format(connector: str, fields: Fields, text: bytes) -> None:
    """Positions have the text format that existing tables contain."""
    assert texts(connector, [fields]) == [text]


@pytest.mark.parametrize("connector", SOURCES)
def test_an_event_without_one_of_its_fields_has_no_position(connector: str) -> None:
    """An event that lacks one of the fields has the position b"", which sorts below all others."""
    orders = {"postgresql": (7,), "oracle": (7, 7), "sqlserver": ((7, 7, 7), (7, 7, 7), 7)}
    whole = SOURCES[connector][1](orders.get(connector, (7, 7, 7)))
    for place in range(len(whole)):
        lacking = tuple(None if i == place else value for i, value in enumerate(whole))
        first, second = texts(connector, [lacking, whole])
        assert first == NO_POSITION < second


@pytest.mark.parametrize(
    ("connector", "fields"),
    [
        ("mysql", ("mysql-bin", 4, 0)),
        ("mysql", ("mysql-bin.12345678901", 4, 0)),
        ("oracle", ("5160,5161", 1)),
        ("oracle", ("1" * 39, 1)),
        ("sqlserver", ("27:ac0:2", "00000027:00000ac0:0002", 1)),
    ],
)
def test_a_field_that_gives_no_order_is_refused(connector: str, fields: Fields) -> None:
    """A field without its connector's format is a bad record at its index, and gets no wrong position."""
    good = ("mysql-bin.000001", 4, 0) if connector == "mysql" else ("1", 1)
    good = ("00000027:00000ac0:0002", "00000027:00000ac0:0002", 1) if connector == "sqlserver" else good
    with pytest.raises(BadRecord, match="does not have its connector's format") as refused:
        texts(connector, [good, fields, good])
    assert refused.value.index == 1


def test_other_connectors_have_no_positions() -> None:
    """Events of a connector without a position format have none: arrival orders them (``merge.md`` section 2)."""
    assert position_format("vitess") is NO_FORMAT
    found = positions(NO_FORMAT, 0, [], 2)
    assert found.tolist() == [NO_POSITION, NO_POSITION]
    assert found.dtype.kind == np.bytes_("").dtype.kind
