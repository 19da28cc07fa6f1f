"""The servers in source blocks of MySQL and MariaDB, and the numbers of their transactions."""

from __future__ import annotations

import pytest

from headrace.core.decode.codec import Source
from headrace.core.decode.log_servers import log_servers
from headrace.core.model.events import NO_POSITION
from headrace.core.model.positions import POSITION_FORMATS, positions

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
POSITION = positions(POSITION_FORMATS["mysql"], 4, [["bin.000003"], [77], [1]], 1)
TAIL = b"%010d.%020d.%010d" % (3, 77, 1)


@pytest.mark.parametrize(
    ("server_id", "gtid", "server", "number"),
    [
        (7, f"{UUID}:23", f"7 {UUID}", b"%020d" % 23),
        (7, f"{UUID}:tag:23", f"7 {UUID}:tag", b"%020d" % 23),
        (7, "0-7-42", "7 0-7", b"%020d" % 42),
        (7, None, "7", TAIL),
        (7, "", "7", TAIL),
        (7, "unknown", "7", TAIL),
        (7, f"{UUID}:{'9' * 21}", "7", TAIL),
        (None, "0-7-42", "0-7", b"%020d" % 42),
    ],
)
def test_forms_of_gtids(server_id: int | None, gtid: str | None, server: str, number: bytes) -> None:
    """The number is that of the GTID, or without one the position without its epoch."""
    found = log_servers([Source(server_id=server_id, gtid=gtid)], POSITION)
    assert found is not None
    assert (found.server.to_pylist(), found.number.tolist()) == ([server], [number])


def test_events_without_a_server() -> None:
    """Snapshot reads have server_id 0 and no position; the sources of other connectors have neither field."""
    assert log_servers([Source(server_id=0), Source()], POSITION.repeat(2)) is None
    both = POSITION.repeat(2)
    both[0] = NO_POSITION
    found = log_servers([Source(server_id=7), Source(server_id=7)], both)
    assert found is not None
    assert found.server.to_pylist() == ["", "7"]
