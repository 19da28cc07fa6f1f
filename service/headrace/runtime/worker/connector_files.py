"""Read connectors from files: one file of standalone mode, or all files of a folder (connectors as code)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.core.connect.connector_plan import DesiredConnector, DesiredConnectors
from headrace.core.connect.lifecycle import TargetState
from headrace.core.connect.properties import parse_properties
from headrace.core.model.errors import ConfigError, RestError
from headrace.runtime.worker.sink_connector import check_addressable, config_with_name

_SUFFIXES = (".json", ".properties")
_YAML = (".yaml", ".yml")
_NO_YAML = "YAML is not read; write the connector as .json or .properties"
_MAX_BYTES = 1024 * 1024
_MOUNTED = "..data"
"""The link in a mounted ConfigMap or Secret that the kubelet replaces at each update."""


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file that cannot be used, with the name of its connector if that is known."""

    message: str
    connector: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectorFiles:
    """The connectors in the files of a folder. ``problems`` and ``ignored`` are by file name."""

    connectors: Sequence[DesiredConnector] = ()
    problems: Mapping[str, FileProblem] = field(default_factory=dict)
    ignored: Sequence[str] = ()

    def desired_connectors(self) -> DesiredConnectors:
        unreadable = {file: problem.connector for file, problem in self.problems.items()}
        return DesiredConnectors(self.connectors, unreadable)

    @property
    def empty(self) -> bool:
        return not self.connectors and not self.problems


def read_folder(folder: Path) -> ConnectorFiles:
    """Read all connector files of a folder. Raises ConfigError if the folder cannot be read.

    Names that begin with a dot, folders, and files with other endings are ignored. A mounted ConfigMap or Secret is
    read at one version, although it may be replaced at the same time.
    """
    try:
        mounted = folder / _MOUNTED
        root = mounted.resolve(strict=True) if mounted.is_symlink() else folder
        paths = sorted(path for path in root.iterdir() if not path.name.startswith(".") and not path.is_dir())
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror}") from error
    suffixes = (*_SUFFIXES, *_YAML)
    ignored = [path.name for path in paths if path.suffix not in suffixes]
    return read_files([path for path in paths if path.suffix in suffixes], ignored)


def read_files(paths: Sequence[Path], ignored: Sequence[str] = ()) -> ConnectorFiles:
    """Read connector files. An error in one does not affect the others."""
    connectors, problems = [], {}
    for path in paths:
        connector = _read(path)
        if isinstance(connector, FileProblem):
            problems[path.name] = connector
        else:
            connectors.append(connector)
    return ConnectorFiles(connectors, problems, ignored)


def read_connector(path: Path) -> tuple[str, dict[str, str | None], TargetState | None]:
    """Read name, configuration and initial state from a connector file. Raises ConfigError with the file.

    The file contains the body of ``POST /connectors``, a flat JSON map, or properties. JSON begins with a brace,
    whatever the file's name is, as in Kafka Connect's standalone mode (KIP-993).
    """
    ending = path.suffix.lower()
    if ending in _YAML:  # a colon separates key and value of properties as well, so that most of it would be accepted
        raise ConfigError(f"{path}: {_NO_YAML}")
    try:
        text = path.read_text(encoding="utf-8")
        is_json = ending == ".json" or text.lstrip().startswith("{")
        document: Any = json.loads(text) if is_json else parse_properties(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as a connector: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: the content is not a JSON object")
    config = document["config"] if isinstance(document.get("config"), dict) else document
    name = str(document.get("name") or config.get("name") or "").strip()
    state = str(document.get("initial_state") or "RUNNING").upper().replace("RUNNING", "STARTED")
    if state not in TargetState.__members__:
        raise ConfigError(f"{path}: initial_state must be RUNNING, PAUSED or STOPPED")
    texts: dict[str, str | None] = {}
    for key, value in config.items():
        if isinstance(value, (list, dict)):
            raise ConfigError(f"{path}: cannot be read as a connector: the value of {key} is not a string", key)
        texts[key] = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return name, texts, TargetState[state]


def _read(path: Path) -> DesiredConnector | FileProblem:
    try:
        if path.stat().st_size > _MAX_BYTES:
            return FileProblem(f"the file is larger than {_MAX_BYTES} bytes; a connector's configuration is smaller")
        name, config, initial = read_connector(path)
    except OSError as error:
        return FileProblem(f"cannot be read as a connector: {error.strerror}")
    except ConfigError as error:
        return FileProblem(str(error).removeprefix(f"{path}: "))
    if not name:
        return FileProblem("the connector has no name; add the key name")
    try:
        check_addressable(name)
        complete = config_with_name(name, config)
    except RestError as error:
        return FileProblem(str(error), name)
    if missing := [key for key, value in complete.items() if value is None]:
        return FileProblem(f"the value of {missing[0]} is null; remove the key, or give it a value", name)
    return DesiredConnector(name, {k: v for k, v in complete.items() if v is not None}, path.name, initial)
