"""A source connector, as the REST API of its Kafka Connect worker shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from headrace.core.connect.lifecycle import State
from headrace.core.resnapshot.source_connector import SnapshotState, snapshot_state


class SourceConnector:
    """The source connector ``name``. ``get`` returns the JSON of a path, and raises ConfigError or RestError."""

    def __init__(self, name: str, get: Callable[[str], Any]) -> None:
        self.name = name
        self._path = f"/connectors/{quote(name, safe='')}"
        self._get = get

    def document(self) -> object:
        """Return name and configuration. They may contain passwords: never print them."""
        return self._get(self._path)

    def plugin_version(self, class_name: str) -> str | None:
        """Return the version of a class of its worker, None if the worker does not show one."""
        plugins = self._get("/connector-plugins")
        versions = {
            plugin.get("class"): plugin.get("version")
            for plugin in (plugins if isinstance(plugins, list) else ())
            if isinstance(plugin, dict)
        }
        return versions.get(class_name)

    def config(self) -> Mapping[str, str]:
        """Return the configuration. It may contain passwords: never print it."""
        config: Mapping[str, str] = self._get(f"{self._path}/config")
        return config

    def state(self) -> str:
        """Return RUNNING if connector and tasks run, or the state of a part that does not."""
        status = self._get(f"{self._path}/status")
        states = [part["state"] for part in (*status["tasks"], status["connector"])]
        if len(states) == 1:
            return State.UNASSIGNED
        return next((state for state in states if state != State.RUNNING), State.RUNNING)

    def snapshot(self, prefix: str) -> SnapshotState:
        """Return the state of its incremental snapshot in the offsets that it has committed last."""
        return snapshot_state(self._get(f"{self._path}/offsets"), prefix)
