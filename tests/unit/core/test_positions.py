"""Positions are text that sorts as the source's own order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import BadRecord
from headrace.core.events import NO_POSITION
from headrace.core.positions import NO_FORMAT, position_format, positions

LSNS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20)


@given(LSNS, st.integers(0, 99999))
def test_positions_sort_as_their_numbers(lsns: list[int], epoch: int) -> None:
    """Whatever their number of digits."""
    found = positions(position_format("postgresql"), epoch, [pa.array(lsns, pa.int64())], len(lsns))
    assert np.argsort(found, kind="stable").tolist() == np.argsort(np.array(lsns), kind="stable").tolist()
    assert found[0] == b"%05d.%020d" % (epoch, lsns[0])


@given(LSNS)
def test_a_higher_epoch_outranks_every_position(lsns: list[int]) -> None:
    """After a failover positions start again under a raised epoch."""
    form, column = position_format("postgresql"), [pa.array(lsns, pa.int64())]
    assert min(positions(form, 1, column, len(lsns))) > max(positions(form, 0, column, len(lsns)))


def test_an_event_without_its_fields_has_no_position() -> None:
    """Snapshot reads and tombstones; b"" sorts below all."""
    found = positions(position_format("postgresql"), 0, [pa.array([None, 7], pa.int64())], 2)
    assert found.tolist() == [NO_POSITION, b"00000.00000000000000000007"]
    assert positions(NO_FORMAT, 0, [], 2).tolist() == [NO_POSITION, NO_POSITION]


def test_an_unknown_connector_is_refused() -> None:
    """Without an order nothing can be merged; the message says which are known."""
    with pytest.raises(BadRecord, match="'mongodb' have no known order; known are: postgresql"):
        position_format("mongodb")
