"""Upkeep of a table beside its writer: compaction, expiry of snapshots, and the ledger's old tombstones.

Each has its own schedule. Compaction is considered after every few commits, and chooses files by what readers save for
each written byte, within a budget (both ``compaction_plan.py``). No result depends on upkeep: after a conflict with
another writer, or an error, it is repeated when it is due again.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from headrace.core.model.table_files import TableFiles
from headrace.core.tables.table_layout import Maintenance
from headrace.ports import UpkeepReport
from headrace_connectors.lakehouse.compaction_plan import FAN_OUT, WriteBudget
from headrace_connectors.lakehouse.failures import Conflict
from headrace_connectors.lakehouse.ledger import TombstoneLedger, ledger_path
from headrace_connectors.lakehouse.table_format import CommitResult, TableFormat, TablePath
from headrace_connectors.lakehouse.table_properties import NO_PROGRESS, carried_properties, progress_of_commits
from headrace_connectors.lakehouse.table_session import TableSession

log = logging.getLogger(__name__)

COMMITS_UNTIL_COMPACTION = FAN_OUT
"""Commits after which a compaction is considered."""

LEDGER_COMMITS_UNTIL_COMPACTION = 100
_EXPIRY_INTERVAL = 600 * 1_000_000

QUERY_TIME = 3600 * 1_000_000
"""How long a query may still read files that no snapshot refers to any more."""

_DAY = 24 * 3600 * 1_000_000


class Upkeep:
    """The upkeep of one table and its ledger. ``run`` works in a thread beside the writer's, with its own session.

    ``commit_lock`` is held by each commit of the writer.
    """

    def __init__(
        self,
        session: TableSession,
        table_format: TableFormat,
        ledger: TombstoneLedger,
        path: TablePath,
        commit_lock: threading.Lock,
        budget: WriteBudget,
        maintenance: Maintenance = Maintenance.BACKGROUND,
    ) -> None:
        self._writer_session = session
        self._own_session: TableSession | None = None
        self._format = table_format
        self._ledger = ledger
        self._path = path
        self._commit_lock = commit_lock
        self._budget = budget
        self._maintenance = maintenance
        # A new handle has no times, and considers everything.
        self._commits = COMMITS_UNTIL_COMPACTION  # since the last compaction
        self._ledger_commits = 0
        self._expired_at: int | None = None
        # When to delete which files, compressed: 5 files a commit, for an hour. Another handle, after a restart, does
        # not know them: it removes them with the files of ended workers.
        self._unread: deque[tuple[int, TablePath, bytes]] = deque()
        self._cleaned_on: int | None = None  # a day
        self._ledger_expired_on: int | None = None
        self._has_commits = False  # of the writer
        self._files: TableFiles | None = None  # after its newest commit, or after a later compaction
        # Each is written by one thread: the writer's, and that of upkeep.
        self._merged = self._rewritten = 0
        self._compacted: int | None = None

    @property
    def _session(self) -> TableSession:
        if self._own_session is None:
            self._own_session = self._writer_session.beside()
        return self._own_session

    def count_commit(self, done: CommitResult) -> None:
        """Count a commit of the writer."""
        self._has_commits = True
        if done.made:
            self._files = done.files
        self._merged += done.written or 0
        self._commits += 1
        self._budget.earn(done.written)

    @property
    def report(self) -> UpkeepReport:
        """The files after the newest commit, the bytes that were written, and the last compaction."""
        return UpkeepReport(self._files, self._merged, self._rewritten, self._compacted)

    def ledger_grew(self) -> None:
        self._ledger_commits += 1

    def is_due(self, now: int) -> bool:
        ledger_is_due = (
            self._ledger_commits >= LEDGER_COMMITS_UNTIL_COMPACTION or self._ledger_expired_on != now // _DAY
        )
        return ledger_is_due or self._compaction_is_due or self._expiry_is_due(now)

    @property
    def _compaction_is_due(self) -> bool:
        if self._maintenance is Maintenance.OFF or not self._has_commits:
            return False
        # With fewer files no tier is full. A new handle of each of hundreds of tables must not list its files for that.
        has_files = self._files is None or self._files.count >= COMMITS_UNTIL_COMPACTION
        return has_files and self._commits >= COMMITS_UNTIL_COMPACTION

    def _expiry_is_due(self, now: int) -> bool:
        if self._maintenance is Maintenance.OFF:
            return False
        return self._expired_at is None or now - self._expired_at >= _EXPIRY_INTERVAL

    def run(self, now: int, tombstone_retention: int) -> None:
        """Do what is due. Times in microseconds. A conflict with another writer is no error."""
        try:
            if self._compaction_is_due:
                self._commits = 0
                written = self._format.compact(self._session, self._path, self._budget.available, self._commit_alone)
                self._budget.spend(written)
                self._rewritten += written
                if written:
                    self._compacted = now
                    # If the writer commits in between, these are the files before that commit, until the next one.
                    self._files = self._format.files(self._session, self._path)

            ledger, today = ledger_path(self._path), now // _DAY
            if self._expiry_is_due(now):
                self._expired_at = now
                self._expire(self._path, now)
                if self._cleaned_on != today:
                    self._cleaned_on = today
                    self._format.clean(self._session, self._path, now)
                    self._format.clean(self._session, ledger, now)

            if self._ledger_commits >= LEDGER_COMMITS_UNTIL_COMPACTION:
                self._ledger_commits = 0
                # Without the lock: commits to the ledger have no progress to repeat.
                self._format.compact(self._session, ledger, float("inf"), lambda: nullcontext({}))
                self._expire(ledger, now)
            if self._ledger_expired_on != today:
                self._ledger.expire(self._session, now - tombstone_retention)
                self._ledger_expired_on = today
        except Conflict as error:
            log.info("Upkeep is repeated later: %s", error)

    def _expire(self, path: TablePath, now: int) -> None:
        """Expire snapshots, and delete what earlier calls have left to queries."""
        if unread := self._format.expire(self._session, path):
            self._unread.append((now + QUERY_TIME, path, zlib.compress(unread.encode())))
        while self._unread and self._unread[0][0] <= now:
            _, of, files = self._unread.popleft()
            self._format.delete(self._session, of, zlib.decompress(files).decode())

    @contextmanager
    def _commit_alone(self) -> Iterator[Mapping[str, str]]:
        """Exclude the writer's commits, and provide the properties that the next commit repeats."""
        with self._commit_lock:
            progress = progress_of_commits(self._format.history(self._session, self._path)) or NO_PROGRESS
            yield carried_properties(progress)
