"""The operations of REST requests, with Kafka Connect's messages and statuses (``connect.md`` sections 2 to 5).

Every worker answers reads from the memory of its stores, without waiting. Writes return when the config log contains
them; on a worker that is not the leader they raise RequestTargetError. The herder starts and stops nothing: workers
follow the log.

Tests: ``tests/rest/test_connectors.py``, ``tests/rest/test_cluster.py``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from headrace.config.validation import Properties
from headrace.core.connect.config_def import ConfigDef, ConfigInfos
from headrace.core.connect.config_state import RestartRequest
from headrace.core.connect.connector_plan import NAME_RULE, Ownership, digest, is_owner_name
from headrace.core.connect.dead_letters import Replay
from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.connect.paused_tables import PausedTable, covering
from headrace.core.connect.resnapshots import ResnapshotRequest, resnapshot_document, state_of
from headrace.core.connect.status import Status, TableReport
from headrace.core.connect.timeline import Kind, changed_options, name_list
from headrace.core.model.errors import ConfigError, Fenced, HeadraceError, RestError
from headrace.core.model.events import TableId
from headrace.ports import TopicPartition
from headrace.runtime.trace import summary
from headrace.runtime.worker.cluster import NO_LEADER, STALE
from headrace.runtime.worker.loggers import LoggerLevel
from headrace.runtime.worker.sink_connector import (
    Config,
    ConnectorCheck,
    ConnectorValidator,
    PluginCatalog,
    PluginInfo,
    check_addressable,
    config_with_name,
)
from headrace.runtime.worker.sink_offsets import ConnectorOffset, SinkOffsets, StoredOffsets, no_stored_offsets
from headrace.runtime.worker.stores import task_statuses
from headrace.runtime.worker.timeline import current_trigger
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)
_OF_TARGET = {
    TargetState.STARTED: Kind.CONNECTOR_RESUMED,
    TargetState.PAUSED: Kind.CONNECTOR_PAUSED,
    TargetState.STOPPED: Kind.CONNECTOR_STOPPED,
}


@dataclass(frozen=True, slots=True)
class ConnectorInfo:
    """A connector, its configuration as submitted, and the numbers of its tasks."""

    name: str
    config: Config
    tasks: Sequence[int]
    type: str


@dataclass(frozen=True, slots=True)
class ConnectorStateInfo:
    """The statuses of a connector and of its tasks, by task number."""

    name: str
    connector: Status
    tasks: Sequence[tuple[int, Status]]
    type: str


class Herder:
    """The requests of one worker (Kafka Connect's ``Herder``).

    The methods raise RestError 404 for a connector, task, table or logger that does not exist.
    """

    def __init__(
        self, worker: Worker, checks: Sequence[ConnectorCheck] = (), stored: StoredOffsets = no_stored_offsets
    ) -> None:
        self._worker = worker
        self._offsets = SinkOffsets(worker, stored)
        self._configs = worker.configs
        self._statuses = worker.statuses
        self._cluster = worker.cluster
        self._catalog = PluginCatalog(worker.connector_class)
        self._validator = ConnectorValidator(worker.connector_class, checks)

    def connectors(self) -> list[str]:
        return self._configs.state.connectors()

    def info(self, name: str) -> ConnectorInfo:
        config = self.config(name)
        tasks = range(self._configs.state.task_count(name))
        return ConnectorInfo(name, config, tasks, self._type(config))

    def config(self, name: str) -> Config:
        """Return the configuration as submitted. Raises RestError 404."""
        config = self._configs.state.connector_config(name)
        if config is None:
            raise RestError(f"Connector {name} not found", 404)
        return config

    def status(self, name: str) -> ConnectorStateInfo:
        """Return the statuses of the connector and its tasks. Raises RestError 404 if it has no status yet."""
        seen = self._statuses.connector(name)
        if seen is None:
            raise RestError(f"No status found for connector {name}", 404)
        config = self._configs.state.connector_config(name)
        return ConnectorStateInfo(name, seen, task_statuses(self._configs, self._statuses, name), self._type(config))

    def task_status(self, name: str, task_number: int) -> Status:
        """Return the status of the task. Raises RestError 404."""
        seen = dict(task_statuses(self._configs, self._statuses, name)).get(task_number)
        if seen is None:
            raise RestError(f"No status found for task {name}-{task_number}", 404)
        return seen

    def task_configs(self, name: str) -> list[Config]:
        self.config(name)
        return self._configs.state.task_configs(name)

    def topics(self, name: str) -> list[str]:
        """Return the active topics, none for an unknown connector. Raises RestError 403."""
        self._tracking_enabled()
        return self._statuses.topics(name)

    def reset_topics(self, name: str) -> None:
        """Reset the active topics. Raises RestError 403."""
        self._tracking_enabled()
        if not self._worker.config.tracking.allow_reset:
            raise RestError("Topic tracking reset is disabled.", 403)
        self._statuses.reset_topics(name)

    def check(self, name: str, config: Properties) -> None:
        """Raise RestError 400 for a connector that could not be created. Needs no running worker."""
        self._to_create(name, config)

    async def create(
        self, name: str, config: Properties, initial: TargetState | None, owner: Ownership | None = None
    ) -> ConnectorInfo:
        """Create a connector. Raises RestError 400 for an invalid configuration, 409 if the name is taken."""
        async with self._changing(_writing_config(name)):
            properties = self._to_create(name, config)
            if self._configs.state.has_connector(name):
                raise RestError(f"Connector {name} already exists", 409)
            write = self._configs.put_connector(name, properties, initial, _of(owner, properties))
            await self._write(write, "connector configuration")
            self._record(Kind.CONNECTOR_CREATED, name)
        return ConnectorInfo(name, properties, (), self._worker.connector_class.type)

    async def put_config(
        self, name: str, config: Properties, owner: Ownership | None = None
    ) -> tuple[bool, ConnectorInfo]:
        """Create or replace the configuration. Return whether the connector is new.

        Raises RestError 400, and 409 if ``owner`` is given and does not own the existing connector.
        """
        async with self._changing(_writing_config(name)):
            given = config_with_name(name, config)
            properties = self._validator.valid_config(given)
            created = not self._configs.state.has_connector(name)
            if created:
                check_addressable(name)
            elif owner is not None:
                self._check_owner(name, owner.owner)
            tasks = range(self._configs.state.task_count(name))
            before = self._configs.state.connector_config(name)
            write = self._configs.put_connector(name, properties, owner=_of(owner, properties))
            await self._write(write, "connector configuration")
            self._record_config(name, before, properties)
        return created, ConnectorInfo(name, properties, tasks, self._worker.connector_class.type)

    async def patch_config(self, name: str, patch: Properties) -> ConnectorInfo:
        """Change some keys and remove those that are null (KIP-477). Raises RestError 400 and 404."""
        async with self._changing(_writing_config(name)):
            merged: dict[str, str | None] = {**self.config(name), **patch}
            given = {key: value for key, value in merged.items() if value is not None}
            properties = self._validator.valid_config(given)
            tasks = range(self._configs.state.task_count(name))
            before = self._configs.state.connector_config(name)
            await self._write(self._configs.put_connector(name, properties), "connector configuration")
            self._record_config(name, before, properties)
        return ConnectorInfo(name, properties, tasks, self._worker.connector_class.type)

    async def delete(self, name: str, owner: str | None = None) -> None:
        """Remove the connector, but not its consumer group's offsets.

        Raises RestError 404, and 409 if ``owner`` is given and does not own the connector.
        """
        async with self._changing(f"removing the config for connector {name} from the config topic"):
            self.config(name)
            if owner is not None:
                self._check_owner(name, owner)
            await self._write(self._configs.remove_connector(name), "connector configuration")
            self._record(Kind.CONNECTOR_DELETED, name)

    def owner(self, name: str) -> Ownership | None:
        """Return the owner of the connector, None if it was created over REST without one. Raises RestError 404."""
        self.config(name)
        return self._configs.state.owner(name)

    async def set_owner(self, name: str, owner: Ownership | None) -> None:
        """Give the connector to an owner, or release it (None). Its configuration stays. Raises RestError 400, 404."""
        async with self._changing(f"writing the owner of connector {name} to the config topic"):
            self.config(name)
            if owner is not None and not is_owner_name(owner.owner):
                raise RestError(f"The owner {owner.owner!r} is not a name: {NAME_RULE}", 400)
            if owner != self._configs.state.owner(name):
                await self._write(self._configs.put_owner(name, owner), "connector owner")

    async def set_target_state(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop the connector. Raises RestError 404."""
        async with self._changing(f"writing a target state for connector {name} to the config topic"):
            if not self._configs.state.has_connector(name):
                raise RestError(f"Unknown connector {name}", 404)
            if target is not self._configs.state.target_state(name):
                await self._write(self._configs.put_target_state(name, target), "target state")
                self._record(_OF_TARGET[target], name)

    def restart(self, name: str) -> None:
        """Restart the connector's instance only. Raises RestError 404."""
        self._cluster.check_leader()
        self._check_exists(name)
        connector = self._worker.connector(name)
        if connector is not None:
            connector.restart(connector=True)
            self._record(Kind.CONNECTOR_RESTARTED, name)

    async def restart_with_tasks(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStateInfo:
        """Restart the instance and tasks that the flags select (KIP-745). Raises RestError 404."""
        self._cluster.check_leader()
        self._check_exists(name)
        if self._statuses.connector(name) is None:
            raise RestError(f"Status for connector {name} not found", 404)
        request = RestartRequest(include_tasks, only_failed)
        info = self.status(name)  # before the write, because a task may run again when the write returns
        connector, tasks = info.connector, []
        selects_any = request.takes(connector.state)
        if selects_any:
            connector = replace(connector, state=State.RESTARTING)
        for task_number, task in info.tasks:
            selected = request.takes_task(task.state, failed_tables=task.has_failed_tables)
            selects_any |= selected
            tasks.append((task_number, replace(task, state=State.RESTARTING) if selected else task))
        if selects_any:
            await self._write(self._configs.request_restart(name, request), "restart request")
            of_tasks = "with its tasks" if include_tasks else "without its tasks"
            self._record(Kind.CONNECTOR_RESTARTED, name, of_tasks + (", where they have failed" if only_failed else ""))
        return replace(info, connector=connector, tasks=tasks)

    def restart_task(self, name: str, task_number: int) -> None:
        """Restart one task. Raises RestError 404, and 409 for a stopped connector as Kafka Connect does."""
        self._check_exists(name)
        if self._configs.state.target_state(name) is TargetState.STOPPED:
            raise RestError(NO_LEADER, 409)
        if not 0 <= task_number < self._configs.state.task_count(name):
            raise RestError(f"Unknown task: {name}-{task_number}", 404)
        self._cluster.check_owner(name, task_number)
        connector = self._worker.connector(name)
        if connector is not None:
            connector.restart(connector=False, tasks=[task_number])
            self._record(Kind.TASK_RESTARTED, name, task=task_number)

    def tables(self, name: str) -> Sequence[tuple[int, TableReport]]:
        """Return the reports of this worker's tasks on the connector's tables, with the tasks' numbers."""
        self._check_exists(name)
        connector = self._worker.connector(name)
        return connector.reports() if connector is not None else ()

    def all_tables(self) -> Sequence[tuple[str, int, TableReport]]:
        """Return the reports of this worker's tasks on all tables, with connector and task number."""
        return [(name, number, report) for name in self.connectors() for number, report in self.tables(name)]

    @property
    def waits_for(self) -> str | None:
        """What the tasks of this worker wait for before they write, None if they can write."""
        return self._worker.waits_for

    def restart_table(self, name: str, table: str, *, recreate: bool = False) -> bool:
        """Restart a table of a task on this worker. Return False if there is none. Raises RestError 404 and 409.

        With ``recreate`` a table that is missing, or behind the group, continues at the group's offsets.
        """
        self._check_exists(name)
        if self._configs.state.target_state(name) is TargetState.STOPPED:
            raise RestError(NO_LEADER, 409)
        connector = self._worker.connector(name)
        if connector is None or not connector.restart_table(table, recreate=recreate):
            return False
        text = "continues at the offsets of the group if it is missing or behind" if recreate else ""
        self._record(Kind.TABLE_RESTARTED, name, text, table=table)
        return True

    async def pause_table(self, name: str, table: str, topics: Collection[str]) -> None:
        """Pause a table with these topics. Idempotent. Raises RestError 404."""
        async with self._changing(_writing_pauses(name)):
            self._check_exists(name)
            paused = self._configs.state.paused_tables(name)
            if table not in paused:
                entry = PausedTable(tuple(sorted(topics)), self._worker.now().timestamp())
                await self._write(self._configs.put_paused_tables(name, {**paused, table: entry}), "paused table")
                self._record(Kind.TABLE_PAUSED, name, table=table)

    async def resume_table(self, name: str, table: str, topics: Collection[str]) -> None:
        """Resume a table with these topics. Idempotent.

        Raises RestError 404, and 409 for a table that is paused because other tables with its topics are.
        """
        async with self._changing(_writing_pauses(name)):
            self._check_exists(name)
            paused = dict(self._configs.state.paused_tables(name))
            if paused.pop(table, None) is not None:
                await self._write(self._configs.put_paused_tables(name, paused), "paused table")
                self._record(Kind.TABLE_RESUMED, name, table=table)
        if others := covering(paused, topics):
            raise RestError(
                f"Table {table} of connector {name} stays PAUSED: paused tables have its topics as well: "
                f"{', '.join(others)}; resume these",
                409,
            )

    def resnapshot(self, name: str, table: str) -> Mapping[str, Any]:
        """Return the document of the newest resnapshot of a table. Raises RestError 404."""
        request = self._resnapshot_request(name, table)
        return resnapshot_document(table, request, self._statuses.resnapshot(name, table))

    def check_resnapshot(self, name: str, table: str) -> None:
        """Check that this worker can accept a request for a resnapshot. Raises RestError 404 and 409."""
        self._cluster.check_leader()
        self._check_exists(name)
        request = self._configs.state.resnapshots(name).get(table)
        if request is not None and state_of(request, self._statuses.resnapshot(name, table)).is_open:
            raise RestError(
                f"Table {table} of connector {name} is being filled again already: GET "
                f"/connectors/{name}/tables/{table}/resnapshot shows its progress, DELETE cancels it",
                409,
            )

    async def request_resnapshot(self, name: str, table: str, source_table: str, topic: str) -> Mapping[str, Any]:
        """Store a request to fill a table again, and return its document. Raises RestError 404 and 409."""
        async with self._changing(_writing_resnapshots(name)):
            self.check_resnapshot(name, table)
            request = ResnapshotRequest(uuid.uuid4().hex, source_table, topic, self._worker.now().timestamp())
            requests = {**self._configs.state.resnapshots(name), table: request}
            await self._write(self._configs.put_resnapshots(name, requests), "resnapshot")
        return self.resnapshot(name, table)

    async def cancel_resnapshot(self, name: str, table: str) -> Mapping[str, Any]:
        """Cancel the resnapshot of a table, and return its document. Idempotent. Raises RestError 404."""
        async with self._changing(_writing_resnapshots(name)):
            request = self._resnapshot_request(name, table)
            if not state_of(request, self._statuses.resnapshot(name, table)).is_open and not request.is_cancelled:
                raise RestError(f"The resnapshot of table {table} of connector {name} has ended already", 404)
            if not request.is_cancelled:
                requests = {**self._configs.state.resnapshots(name), table: replace(request, is_cancelled=True)}
                await self._write(self._configs.put_resnapshots(name, requests), "resnapshot")
        return self.resnapshot(name, table)

    def _resnapshot_request(self, name: str, table: str) -> ResnapshotRequest:
        self._check_exists(name)
        request = self._configs.state.resnapshots(name).get(table)
        if request is None:
            raise RestError(
                f"No resnapshot of table {table} of connector {name} was requested; POST "
                f"/connectors/{name}/tables/{table}/resnapshot requests one",
                404,
            )
        return request

    def paused_topics(self, name: str, table: str) -> Collection[str]:
        """Return the topics with which a request has paused the table, none for another table. Raises RestError 404."""
        self._check_exists(name)
        paused = self._configs.state.paused_tables(name).get(table)
        return () if paused is None else paused.topics

    def topics_of_quiet_table(self, name: str, table: str) -> Collection[str]:
        """Return the topics of a table that has had no change since its task started, none if they are not known.

        The name of such a table has to follow from that of its topic alone. The topic is listed in ``topics``, or has
        been read before. Raises RestError 404.
        """
        config = self.config(name)
        try:
            parsed = self._worker.connector_class.config(self._worker.providers.properties(config))
        except ConfigError:
            return ()
        naming, options = parsed.tables.naming, parsed.framework
        if naming.by_source or options.transforms or not self._worker.connector_class.runs(config):
            return ()
        topics = []
        for topic in {*options.topics.names, *self._statuses.topics(name)}:
            with suppress(ConfigError):  # a topic whose name cannot be that of a table
                if naming.name(topic, TableId("", "", "", topic)) == table:
                    topics.append(topic)
        return topics

    def replay(self, name: str) -> Replay | None:
        """Return the last replay of the connector's dead letters as it is stored. Raises RestError 404."""
        self._check_exists(name)
        return self._configs.state.replay(name)

    async def put_replay(self, name: str, replay: Replay, *, begins: bool = False) -> None:
        """Store the state of a replay, which this worker runs.

        Raises RestError 404, and 409: if another replay runs, or, unless this one ``begins``, if it was ended already
        by another leader.
        """
        async with self._changing(f"writing the replay of connector {name}'s dead letters to the config topic"):
            self._check_exists(name)
            stored = self._configs.state.replay(name)
            runs = stored is not None and stored.is_running
            if begins and runs:
                raise replay_runs(name)
            if not begins and (stored is None or not runs or stored.run != replay.run):
                raise RestError(f"Connector {name}: the replay of its dead letters was ended by another leader", 409)
            await self._write(self._configs.put_replay(name, replay), "replay of dead letters")

    def other_owners(self, name: str | None = None) -> Collection[str]:
        return self._cluster.other_owners(name)

    async def offsets(self, name: str) -> Mapping[TopicPartition, int]:
        return await self._offsets.committed_offsets(name)

    async def alter_offsets(self, name: str, entries: Sequence[ConnectorOffset]) -> None:
        """Set or remove offsets of a stopped connector. Raises RestError 400, 404 and 500."""
        self._cluster.check_leader()
        offsets = await self._offsets.alter(name, entries)
        self._record(Kind.OFFSETS_ALTERED, name, name_list(sorted(f"{topic}-{number}" for topic, number in offsets)))

    async def reset_offsets(self, name: str) -> None:
        """Remove all offsets of a stopped connector. Raises RestError 400, 404 and 500."""
        self._cluster.check_leader()
        await self._offsets.reset(name)
        self._record(Kind.OFFSETS_RESET, name)

    def loggers(self) -> Mapping[str, LoggerLevel]:
        return self._worker.loggers.all()

    def logger(self, name: str) -> LoggerLevel:
        return self._worker.loggers.level(name)

    def set_worker_level(self, name: str, level: str) -> list[str]:
        """Set a logger of this worker and all below it. Return the names of those that changed. Raises RestError."""
        return self._worker.loggers.set_level(name, level)

    async def set_cluster_level(self, name: str, level: str) -> None:
        """Set a logger on every worker that runs now (KIP-976). Raises RestError."""
        level_name = self._worker.loggers.check(name, level)
        self._cluster.check_leader()
        await self._write(self._configs.put_logger_level(name, level_name), "logger level")

    def plugins(self, *, connectors_only: bool) -> Sequence[PluginInfo]:
        return self._catalog.plugins(connectors_only=connectors_only)

    def plugin_config(self, plugin: str, version: str | None = None) -> ConfigDef:
        """Return the options of a plug-in's class. Raises RestError 404, and 400 if ``version`` excludes it."""
        return self._catalog.definitions(plugin, version)

    def validate(self, plugin: str, config: Properties) -> ConfigInfos:
        """Validate a configuration. Raises RestError if it names another class than the path."""
        return self._validator.validate(plugin, config)

    def _check_owner(self, name: str, owner: str) -> None:
        stored = self._configs.state.owner(name)
        if stored is None or stored.owner != owner:
            by = "has no owner: it was created over REST" if stored is None else f"is owned by {stored.owner}"
            raise RestError(
                f"Connector {name} {by}; PUT /connectors/{name}/owner with the owner {owner} adopts the connector", 409
            )

    def _to_create(self, name: str, config: Properties) -> Config:
        properties = self._validator.valid_config(config_with_name(name, config))
        check_addressable(name)
        return properties

    def _type(self, config: Config | None) -> str:
        connector = self._worker.connector_class
        return connector.type if connector.runs(config or {}) else "unknown"

    def _check_exists(self, name: str) -> None:
        if not self._configs.state.has_connector(name):
            raise RestError(f"Unknown connector: {name}", 404)

    def _tracking_enabled(self) -> None:
        if not self._worker.config.tracking.enabled:
            raise RestError("Topic tracking is disabled.", 403)

    @asynccontextmanager
    async def _changing(self, what: str) -> AsyncIterator[None]:
        """Run one change at a time, on the leader only, so that a check holds until the write."""
        async with self._configs.changing(what):
            self._cluster.check_leader()
            yield

    def _record(
        self, kind: Kind, name: str, text: str = "", *, task: int | None = None, table: str | None = None
    ) -> None:
        """Add what a request has changed to the timeline."""
        self._worker.timeline.record(kind, name, text, task=task, table=table, trigger=current_trigger())

    def _record_config(self, name: str, before: Config | None, after: Config) -> None:
        if before is None:
            self._record(Kind.CONNECTOR_CREATED, name)
        elif options := changed_options(before, after):
            self._record(Kind.CONFIG_CHANGED, name, name_list(options))

    async def _write(self, write: Awaitable[None], what: str) -> None:
        try:
            await self._cluster.write(write)
        except Fenced as error:
            log.warning("Config topic: writing a %s was rejected: %s", what, summary(error))
            raise RestError(STALE, 409) from error
        except HeadraceError as error:
            log.error("Config topic: writing a %s failed: %s", what, summary(error))
            raise RestError(f"Error writing {what} to Kafka", 500) from error


def replay_runs(name: str) -> RestError:
    return RestError(
        f"A replay of the dead letters of connector {name} is running; "
        f"GET /connectors/{name}/dead-letters/replay reports its progress",
        409,
    )


def _of(owner: Ownership | None, config: Config) -> Ownership | None:
    """Return ``owner`` with the digest of the configuration that is written. Raises RestError 400 for its name."""
    if owner is not None and not is_owner_name(owner.owner):
        raise RestError(f"The owner {owner.owner!r} is not a name: {NAME_RULE}", 400)
    return None if owner is None else replace(owner, digest=digest(config))


def _writing_pauses(name: str) -> str:
    return f"writing the paused tables of connector {name} to the config topic"


def _writing_resnapshots(name: str) -> str:
    return f"writing the resnapshots of connector {name} to the config topic"


def _writing_config(name: str) -> str:
    return f"writing a config for connector {name} to the config topic"
