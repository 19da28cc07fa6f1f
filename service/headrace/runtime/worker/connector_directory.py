"""Connectors as code: the leader makes the connectors equal to the files of ``connectors.directory``.

Every round reads all files and compares them with the config topic. So a change of a file, a change over REST and a new
leader need no special case, and nothing depends on notifications, which not all mounts send. A deletion requires that
two rounds in a row read the same files: a folder that is being filled must not delete connectors.

Tests: ``tests/rest/test_directory.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from headrace.config.directory_options import DirectorySettings
from headrace.core.connect.connector_plan import (
    CHANGES,
    DIRECTORY,
    Action,
    Ownership,
    PlanPolicy,
    Step,
    StoredConnector,
    digest,
    plan,
)
from headrace.core.connect.timeline import Trigger, TriggerType, short
from headrace.core.model.errors import ConfigError, HeadraceError, RestError
from headrace.runtime.trace import summary
from headrace.runtime.worker.cluster import RequestTargetError
from headrace.runtime.worker.connector_files import ConnectorFiles, read_folder
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.timeline import triggered_by
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)
_DONE = {Action.CREATE: "created", Action.UPDATE: "changed", Action.ADOPT: "adopted", Action.DELETE: "deleted"}
_EMPTY = "the folder has no connector file; connectors.directory.empty=delete deletes its connectors"
_CONFLICT = 409


class EntryState(StrEnum):
    """How a connector compares with its file."""

    IN_SYNC = "IN_SYNC"
    PENDING = "PENDING"
    """The change is not made yet: a dry run, or a deletion that waits for the next round."""
    DRIFTED = "DRIFTED"
    CONFLICT = "CONFLICT"
    FAILED = "FAILED"
    KEPT = "KEPT"


_STATES = {Action.DRIFT: EntryState.DRIFTED, Action.CONFLICT: EntryState.CONFLICT, Action.KEEP: EntryState.KEPT}


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A connector, what the last round did or would do with it, and why."""

    step: Step
    state: EntryState
    message: str = ""


@dataclass(frozen=True, slots=True)
class DirectoryReport:
    """The result of the last round. ``problem`` is why the folder could not be read, empty if it could."""

    folder: Path
    read: datetime | None = None
    dry_run: bool = False
    problem: str = ""
    files: ConnectorFiles = ConnectorFiles()  # noqa: RUF009 - frozen
    entries: Sequence[DirectoryEntry] = ()


class ConnectorDirectory:
    """Reconciles the folder on the leader. On other workers it does nothing."""

    def __init__(self, worker: Worker, herder: Herder, read: Callable[[Path], ConnectorFiles] = read_folder) -> None:
        self._worker = worker
        self._herder = herder
        self._read = read
        self._settings: DirectorySettings = worker.config.directory
        self._folder = Path(self._settings.folder) if self._settings.folder else None
        self._running: asyncio.Task[None] | None = None
        self._last: ConnectorFiles | None = None
        self._logged: dict[str, str] = {}
        self._report: DirectoryReport | None = None
        self.corrections = 0
        """The number of configurations that were changed over REST and replaced by those of their files."""

    def start(self) -> None:
        if self._folder is not None:
            self._running = asyncio.create_task(self._run(), name="connectors-directory")

    async def stop(self) -> None:
        """End the rounds. Idempotent."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running

    def current(self) -> DirectoryReport | None:
        """Return the last report if this worker is the leader and has finished a round, else None."""
        return self._report if self._worker.cluster.leads else None

    def report(self) -> DirectoryReport:
        """Return the last report. Raises RequestTargetError on other workers than the leader, RestError 404."""
        self._worker.cluster.check_leader()
        if self._folder is None:
            raise RestError("No folder is configured; set connectors.directory on all workers", 404)
        return self._report or DirectoryReport(self._folder, None, self._settings.dry_run)

    async def reconcile(self) -> None:
        """Run one round, on the leader. Raises no error: the report and the log have them."""
        folder = self._folder
        if folder is None:
            return
        before, self._last = self._last, None
        try:
            files = await asyncio.to_thread(self._read, folder)
        except ConfigError as error:
            message = f"{error}; nothing is changed until the folder can be read"
            self._warn_once({"": message})
            self._report = DirectoryReport(folder, self._worker.now(), self._settings.dry_run, message)
            return
        self._last = files
        kept = _EMPTY if files.empty and not self._settings.delete_all else None
        policy, herder = PlanPolicy(kept, self._settings.correct_drift), self._herder
        stored = {name: StoredConnector(herder.config(name), herder.owner(name)) for name in herder.connectors()}
        steps = plan(DIRECTORY, files.desired_connectors(), stored, policy)
        entries = await self._entries(folder, steps, stable=files == before)
        self._report = DirectoryReport(folder, self._worker.now(), self._settings.dry_run, "", files, entries)
        self._warn_once(_warnings(folder, self._report))

    async def _run(self) -> None:
        while True:
            if self._worker.cluster.leads:
                try:
                    await self.reconcile()
                except Exception as error:  # the rounds must not end; the next one may succeed
                    log.error("connectors.directory: a round has failed, and the next one retries: %s", summary(error))
            else:
                self._report = self._last = None
                self._logged.clear()
            await asyncio.sleep(self._settings.poll_interval)

    async def _entries(self, folder: Path, steps: Sequence[Step], *, stable: bool) -> list[DirectoryEntry]:
        """Carry out the steps. Creations wait for deletions: a renamed connector must not run under both names."""
        entries: list[DirectoryEntry] = []
        deletes = True  # all deletions so far are done; they come first
        for step in steps:
            if step.action is Action.DELETE and not stable:
                entries.append(DirectoryEntry(step, EntryState.PENDING, "waits until a round reads the same files"))
            elif step.action is Action.CREATE and not deletes and not self._settings.dry_run:
                entries.append(DirectoryEntry(step, EntryState.PENDING, "waits for the deletion of other connectors"))
            else:
                entries.append(await self._entry(folder, step))
            if step.action is Action.DELETE:
                deleted = entries[-1].state is EntryState.IN_SYNC
                deletes = deletes and deleted
                if deleted:
                    entries.pop()  # the report lists connectors that exist
        return entries

    async def _entry(self, folder: Path, step: Step) -> DirectoryEntry:
        if step.action not in CHANGES:
            return DirectoryEntry(step, _STATES.get(step.action, EntryState.IN_SYNC), step.reason)
        try:
            if self._settings.dry_run:
                if step.desired is not None:
                    self._herder.check(step.name, step.desired.config)
                return DirectoryEntry(step, EntryState.PENDING, "dry run")
            with triggered_by(Trigger(TriggerType.FILE, path=short(step.source))):
                await self._apply(step)
        except RequestTargetError as error:
            return DirectoryEntry(step, EntryState.PENDING, f"{error.worker} is the leader now")
        except RestError as error:
            retried = error.status == _CONFLICT
            return DirectoryEntry(step, EntryState.PENDING if retried else EntryState.FAILED, str(error))
        except HeadraceError as error:
            return DirectoryEntry(step, EntryState.FAILED, summary(error))
        self.corrections += step.drifted
        level = logging.WARNING if step.drifted else logging.INFO
        keys = f" (options {', '.join(step.keys)})" if step.action is Action.UPDATE else ""
        reason = f": {step.reason}" if step.reason else ""
        log.log(
            level, "Connector %s: %s from %s%s%s", step.name, _DONE[step.action], folder / step.source, keys, reason
        )
        return DirectoryEntry(step, EntryState.IN_SYNC, step.reason)

    async def _apply(self, step: Step) -> None:
        owner, desired = Ownership(DIRECTORY, step.source), step.desired
        if desired is None:
            await self._herder.delete(step.name, DIRECTORY)
        elif step.action is Action.CREATE:
            await self._herder.create(step.name, desired.config, desired.initial, owner)
        elif step.action is Action.ADOPT:
            await self._herder.set_owner(step.name, replace(owner, digest=digest(desired.config)))
        else:
            await self._herder.put_config(step.name, desired.config, owner)

    def _warn_once(self, problems: dict[str, str]) -> None:
        """Log the problems that the last round did not have."""
        for key, message in problems.items():
            if self._logged.get(key) != message:
                log.warning("%s", message)
        self._logged = problems


def _warnings(folder: Path, report: DirectoryReport) -> dict[str, str]:
    """Return the warnings for the operator, by file or connector."""
    warnings = {
        file: f"{folder / file}: {problem.message}; the connector stays as it is until the file is correct"
        for file, problem in report.files.problems.items()
    }
    for entry in report.entries:
        name, keys = entry.step.name, ", ".join(entry.step.keys)
        path = folder / entry.step.source
        if entry.state is EntryState.FAILED:
            cause = entry.message.replace("\n", " ")
            warnings[f"connector {name}"] = f"{path}: connector {name} is not changed: {cause}"
        elif entry.state is EntryState.CONFLICT:
            adopt = f'; to adopt it, PUT /connectors/{name}/owner {{"owner": "{DIRECTORY}"}}' if keys else ""
            warnings[f"connector {name}"] = f"{path}: connector {name} is not changed: {entry.message}{adopt}"
        elif entry.state is EntryState.DRIFTED:
            warnings[f"connector {name}"] = f"Connector {name}: differs from {path} in {keys}: {entry.message}"
        elif entry.state is EntryState.KEPT:
            warnings[f"connector {name}"] = f"Connector {name}: has no file in {folder} and is kept: {entry.message}"
        elif entry.state is EntryState.PENDING and report.dry_run:
            done = _DONE[entry.step.action]
            warnings[f"connector {name}"] = f"Connector {name}: would be {done} from {path} (dry run) {keys}".rstrip()
    return warnings
