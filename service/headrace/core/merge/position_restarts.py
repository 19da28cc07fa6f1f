"""Positions that start again on another server: MySQL and MariaDB after a failover (``merge.md`` section 2.6).

The files and positions of two servers' binary logs cannot be compared. After a failover, and after a connector with
GTIDs has connected to another replica, changes may have lower positions than the changes before them, and would be
dropped as late ones. GTIDs and server_id show the difference:

- A change that is sent again is of a transaction whose number was read before in its partition.
- A change whose transaction is new there, with a position that is not higher than those before it, is of another log.

At such a record the table fails, once: a *restart* is recorded in its ledger, and the operator raises
``source.position.epoch``. The answered restart divides the partition: what lies before it keeps the epoch that it had,
however often it is read again, and what follows has the new one. The other partitions change their epoch by themselves
where their records come to the log of the restart, so that one failover needs one answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from headrace.core.model.events import NO_POSITION, Bools, Ints, LogServers, RowVersion, Versions
from headrace.core.model.keys import RESTART_PREFIX
from headrace.core.model.log_progress import TRUNCATE, LogProgress, Place, Progress, furthest, newest, to_text
from headrace.core.model.positions import EPOCH

Texts = npt.NDArray[np.bytes_]

_EPOCH_WIDTH = len(EPOCH % 0)
_TRUNCATE_PREFIX = f"{RESTART_PREFIX}truncate:"


@dataclass(frozen=True, slots=True)
class Restart:
    """The record of a partition at which positions start again. Its ``version`` has the epoch before it.

    ``server_had_changes`` is whether changes of its server had been read from the partition before.
    """

    place: Place
    server: str
    number: bytes
    server_had_changes: bool
    version: RowVersion

    @property
    def epoch(self) -> int:
        return _epoch(self.version.position)

    @property
    def ledger_key(self) -> str:
        parts = [self.place.name, self.epoch, self.server, self.number.decode(), self.server_had_changes]
        return RESTART_PREFIX + json.dumps([self.place.topic, self.place.partition, *parts])


def recorded_restarts(ledger: Mapping[str, RowVersion]) -> Sequence[Restart]:
    """Return the restarts in a ledger."""
    restarts = []
    for key, version in ledger.items():
        if key.startswith(RESTART_PREFIX) and not key.startswith(_TRUNCATE_PREFIX):
            topic, partition, name, _, server, number, had_changes = json.loads(key.removeprefix(RESTART_PREFIX))
            restarts.append(Restart(Place(topic, name, partition), server, number.encode(), had_changes, version))
    return restarts


def truncate_key(progress: Progress, place: Place) -> str:
    """Return the key in the ledger for what had been read with a truncate at ``place``."""
    places = (place, place._replace(partition=TRUNCATE))
    return _TRUNCATE_PREFIX + to_text(
        {read_place: progress[read_place] for read_place in places if read_place in progress}
    )


def recorded_truncates(ledger: Mapping[str, RowVersion]) -> Progress:
    """Return what had been read with the truncates in a ledger."""
    return newest(key.removeprefix(_TRUNCATE_PREFIX) for key in ledger if key.startswith(_TRUNCATE_PREFIX))


@dataclass(slots=True)
class Placed:
    """Changes with the epochs of their places in the log, and what was read with them.

    ``restarts`` are the restarts that partitions have reached; ``unanswered`` is the one of them for which the operator
    has to raise the epoch, ``before`` what was read of its partition before it.
    """

    versions: Versions
    progress: Progress
    restarts: list[Restart] = field(default_factory=list)
    unanswered: Restart | None = None
    before: LogProgress = field(default_factory=LogProgress)


def place_changes(
    name: str,
    versions: Versions,
    servers: LogServers,
    progress: Progress,
    restarts: Sequence[Restart],
    floor: RowVersion | None,
    *,
    is_new: bool,
    truncate: bool = False,
) -> Placed:
    """Place changes of the connector ``name`` behind what was read before them (``progress``).

    ``restarts`` are those in the ledger, ``floor`` is the version of the table's last truncate. A ``truncate`` has to
    be above the rows of all partitions. ``is_new`` is whether the table does not exist yet.
    """
    result = Placed(replace(versions, position=versions.position.copy()), progress)
    encoded = servers.server.dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), np.asarray(encoded.indices)
    unnamed = names.index("") if "" in names else -1
    named = (versions.position != NO_POSITION) & (codes != unnamed)
    for partition in np.unique(versions.partition[named]).tolist():
        index = np.flatnonzero(named & (versions.partition == partition))
        if (np.diff(versions.offset[index]) < 0).any():  # halves of key changes wait for each other
            index = index[np.argsort(versions.offset[index], kind="stable")]
        place = Place(versions.topic, name, partition)
        servers_of = _Servers(names, codes[index], servers.number[index])
        walk = _Walk(place, versions.take(index), servers_of, progress, restarts)
        walk.knows_table = is_new or bool(progress)
        if truncate:  # it has to be above the rows of all partitions
            walk.others = LogProgress()
            for other, read in progress.items():
                if (other.topic, other.name) == (place.topic, place.name) and other.partition != TRUNCATE:
                    walk.others = walk.others.join(read)
        elif floor is not None and (floor.topic, floor.partition) != (place.topic, place.partition):
            # What had been read of another partition when its truncate arrived, which is the last one of the table.
            at_floor = progress.get(place._replace(partition=TRUNCATE))
            walk.others = at_floor if at_floor is not None and at_floor.position == floor.position else None
        walk.run(result, index)
    return result


def with_truncate(progress: Progress, place: Place, position: bytes) -> Progress:
    """Return progress with what was read of a truncate's partition when it arrived."""
    truncate = place._replace(partition=TRUNCATE)
    read = progress.get(place, LogProgress())
    return furthest(progress, {truncate: LogProgress(position, read.numbers, read.time, read.offset)})


@dataclass(frozen=True, slots=True)
class _Servers:
    """The servers of changes, as ``code`` in ``names``, and the numbers of their transactions."""

    names: Sequence[str]
    code: npt.NDArray[np.int32]
    number: Texts

    def since(self, begin: int) -> _Servers:
        return _Servers(self.names, self.code[begin:], self.number[begin:])

    def of(self, server: str) -> Bools:
        is_of_server: Bools = self.code == (self.names.index(server) if server in self.names else -1)
        return is_of_server

    def behind(self, restart: Restart) -> Bools:
        """The changes of the restart's server from its transaction on; all, if it had no changes before the restart."""
        its = self.of(restart.server)
        return its & (self.number >= restart.number) if restart.server_had_changes else its

    def among(self, chosen: Bools) -> Sequence[str]:
        return [self.names[code] for code in np.unique(self.code[chosen]).tolist()]


class _Walk:
    """The changes of one partition."""

    def __init__(
        self, place: Place, versions: Versions, servers: _Servers, progress: Progress, restarts: Sequence[Restart]
    ) -> None:
        self._place = place
        self._versions = versions
        self._servers = servers
        self._before = progress.get(place, LogProgress())
        self._configured = _epoch(bytes(versions.position[0]))
        self._answered = [
            restart
            for restart in restarts
            if restart.epoch < self._configured
            and (restart.place.topic, restart.place.name) == (place.topic, place.name)
        ]
        self._passed = sorted(
            (restart for restart in self._answered if restart.place == place), key=lambda restart: restart.epoch
        )
        self.knows_table = True
        """Whether the progress contains all partitions that the table has records of."""
        self.others: LogProgress | None = None
        """What was read of other partitions before these changes, if they have to be above it as well."""
        self._restarts: list[Restart] = []

    def run(self, result: Placed, index: Ints) -> None:
        """Place the changes, which are at ``index`` of all."""
        position = self._in_epochs()
        again = self._first_restart(position, self._before, 0)
        if again is not None:
            before = self._progress(position, again)
            result.before = before if position[again] <= before.position else self.others or before
            result.unanswered = self._restart(again, position)
            self._restarts.append(result.unanswered)
        result.restarts += self._restarts
        result.versions.position[index] = position
        result.progress = furthest(result.progress, {self._place: self._progress(position, len(index))})

    # -- epochs ---------------------------------------------------------------------------------------------------

    def _in_epochs(self) -> Texts:
        """The positions with the epochs of their places."""
        offset = self._versions.offset
        before = {restart.epoch: self._before_restart(restart) for restart in self._passed}
        begin = int(np.searchsorted(offset, max((restart.version.offset for restart in self._passed), default=0)))
        for epoch in self._open_epochs():
            before[epoch] = np.ones(len(offset), np.bool_)
            position = self._with_epochs(before)
            end = self._end_of(epoch, position, begin)
            if end is None:
                break
            restart = self._restart(end, position)
            self._restarts.append(restart)
            before[epoch], begin = self._before_restart(restart), end
        return self._with_epochs(before)

    def _before_restart(self, restart: Restart) -> Bools:
        """The changes before a restart of this partition. Its first record may have waited for another one."""
        return (self._versions.offset < restart.version.offset) & ~self._servers.behind(restart)

    def _with_epochs(self, before: Mapping[int, Bools]) -> Texts:
        """The positions with the lowest epoch before whose end they are, all others as configured."""
        position = self._versions.position
        if not before:
            return position
        epochs = np.full(len(position), self._configured)
        for epoch in sorted(before, reverse=True):
            epochs[before[epoch]] = epoch
        changed = position.copy()
        digits = changed.view(np.uint8).reshape(len(changed), -1)
        for epoch in np.unique(epochs).tolist():
            digits[epochs == epoch, :_EPOCH_WIDTH] = np.frombuffer((EPOCH % epoch).encode(), np.uint8)
        return changed

    def _open_epochs(self) -> Sequence[int]:
        """The epochs below the configured one that this partition has not left yet.

        None if the operator has raised the epoch without a restart: then the configured one counts at once.
        """
        answered = {restart.epoch for restart in self._answered}
        if not answered or not self.knows_table:
            return ()
        if self._passed:
            first = self._passed[-1].epoch + 1
        else:
            first = _epoch(self._before.position) if self._before.position else min(answered)
        missing = range(first, self._configured)
        return missing if answered.issuperset(missing) else ()

    def _end_of(self, epoch: int, position: Texts, begin: int) -> int | None:
        """The first change from ``begin`` on that does not belong to ``epoch`` any more."""
        before, servers = self._progress(position, begin), self._servers.since(begin)
        behind = np.zeros(len(position) - begin, np.bool_)
        for restart in (restart for restart in self._answered if restart.epoch == epoch):
            had_changes = restart.server_had_changes or restart.server in before.numbers
            behind |= servers.behind(replace(restart, server_had_changes=had_changes))
        ends = np.flatnonzero(behind)[:1].tolist()
        again = self._first_restart(position[begin:], before, begin)
        ends += [] if again is None else [again]
        return begin + min(ends) if ends else None

    # -- restarts -------------------------------------------------------------------------------------------------

    def _first_restart(self, position: Texts, before: LogProgress, begin: int) -> int | None:
        """The first of the changes from ``begin`` on whose transaction is new but whose position is not the highest."""
        servers = self._servers.since(begin)
        restarts = _below_before(position, servers, before)
        if self.others is not None:
            time = self._versions.source_time[begin:]
            restarts |= _below_other_partitions(position, servers, time, self.others)
        # A record below the last offset is read again, or has waited for another one: what follows it shows a restart.
        restarts &= self._versions.offset[begin:] > self._before.offset
        indexes = np.flatnonzero(restarts)
        return int(indexes[0]) if len(indexes) else None

    def _restart(self, index: int, position: Texts) -> Restart:
        server = self._servers.names[self._servers.code[index]]
        had_changes = server in self._progress(position, index).numbers
        version = replace(self._versions.row(index), position=bytes(position[index]))
        return Restart(self._place, server, bytes(self._servers.number[index]), had_changes, version)

    def _progress(self, position: Texts, end: int) -> LogProgress:
        """What was read of the partition with the changes before ``end``."""
        if not end:
            return self._before
        servers = _Servers(self._servers.names, self._servers.code[:end], self._servers.number[:end])
        all_of_them = np.ones(end, np.bool_)
        numbers = {name: _highest(servers.number[servers.of(name)]) for name in servers.among(all_of_them)}
        time, offset = int(self._versions.source_time[:end].max()), int(self._versions.offset[end - 1])
        return self._before.join(LogProgress(_highest(position[:end]), numbers, time, offset))


def _below_before(position: Texts, servers: _Servers, before: LogProgress) -> Bools:
    """The changes of new transactions whose position is not higher than all positions before them."""
    none = np.zeros(len(position), np.bool_)
    if not len(position) or (position[0] > before.position and (position[1:] > position[:-1]).all()):
        return none
    new = none
    for server in servers.among(np.ones(len(position), np.bool_)):
        its, highest = servers.of(server), before.numbers.get(server, b"")
        if _highest(servers.number[its]) > highest:  # otherwise all of them are sent or read again, which is common
            new[its] = _exceeding(servers.number[its], highest)
    return new & ~_exceeding(position, before.position) if new.any() else none


def _below_other_partitions(position: Texts, servers: _Servers, time: Ints, others: LogProgress) -> Bools:
    """The changes that are below what was read of other partitions, although their transactions are newer.

    A partition that is behind may also have a new transaction of one server below an older one of another: it has an
    earlier time.
    """
    below: Bools = (position <= others.position) & (time > others.time)
    for server in servers.among(below):
        its = below & servers.of(server)
        below[its] = servers.number[its] > others.numbers.get(server, b"")
    return below


def _exceeding(texts: Texts, before: bytes) -> Bools:
    """Whether each text is higher than all texts before it, ``before`` included."""
    ranks = np.unique(np.append(np.array([before], texts.dtype), texts), return_inverse=True)[1].ravel()
    exceeding: Bools = ranks[1:] > np.maximum.accumulate(ranks)[:-1]
    return exceeding


def _highest(texts: Texts) -> bytes:
    return bytes(texts[texts.argmax()])


def _epoch(position: bytes) -> int:
    return int(position[:_EPOCH_WIDTH])
