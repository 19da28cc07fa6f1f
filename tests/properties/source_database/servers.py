"""The servers of a simulated MySQL or MariaDB: the one that commits, and the one whose log the connector reads.

Each server has a log of its own, whose files have other numbers. A transaction keeps the server_id and the GTID of the
server that committed it in every log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

FIRST_FILES = (999_998, 3, 1_500_000, 400_000)
"""The first file of each log. The last one is that of a replica, which commits nothing itself."""
PRIMARIES = 3


@dataclass(frozen=True)
class Reading:
    """The server that commits, and the log that is read."""

    server: int = 0
    log: int = 0

    def after_failover(self, pick: int, *, gtids: bool) -> Reading:
        """Another primary, or an earlier one again; with GTIDs perhaps only the log of another replica."""
        target = pick % (PRIMARIES + 1)
        if target == PRIMARIES and gtids and self.log != PRIMARIES:
            return replace(self, log=PRIMARIES)
        target %= PRIMARIES
        return Reading(target, target) if target != self.server else self.after_failover(target + 1, gtids=gtids)


def identity(connector: str, server: int, number: int) -> dict[str, Any]:
    """``server_id`` and ``gtid`` of a server's transaction."""
    server_id = server + 1
    uuid = f"3e11fa47-71ca-11e1-9e33-c80aa942956{server_id}"
    return {"server_id": server_id, "gtid": f"0-{server_id}-{number}" if connector == "mariadb" else f"{uuid}:{number}"}
