"""The texts of a configuration before they are parsed, and what connectors may not read through config providers.

The operator of a worker and the users of its REST API are not the same people. Even where ``allowed.paths`` or
``allowlist.pattern`` is wide, a connector must not get the worker's passwords, keys and environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.core.connect.config_def import trim
from headrace.core.connect.properties import references

Value = TypeVar("Value", str, str | None)

_AS_GIVEN = ("spark.", "table.properties.")


def trim_values(properties: Mapping[str, Value]) -> dict[str, Value]:
    """The values without blanks around them, as Kafka's parser reads them.

    What Spark or a table format gets is theirs to read, and stays as it is.
    """
    return {
        name: value if value is None or name.startswith(_AS_GIVEN) else trim(value)
        for name, value in properties.items()
    }


_SYSTEM = ("/proc", "/sys", "/dev")
"""Folders of the kernel: they show environment and memory of processes."""
_VARIABLES = ("CONNECT_", "HEADRACE_")
"""Prefixes of the environment variables that configure a worker and its commands."""


@dataclass(frozen=True, slots=True)
class OwnSecrets:
    """Files, entries of properties files, and environment variables. Paths have no symbolic links."""

    files: frozenset[str] = frozenset()
    entries: frozenset[tuple[str, str]] = frozenset()
    variables: frozenset[str] = frozenset()

    def contain(self, file: str, key: str | None) -> bool:
        """Return whether the entry ``key`` of a file is the worker's, or, without a key, a part of the file."""
        if file in self.files or any(Path(file).is_relative_to(folder) for folder in _SYSTEM):
            return True
        return any(file == owned and key in (None, entry) for owned, entry in self.entries)

    def contain_variable(self, name: str) -> bool:
        """Return whether an environment variable is the worker's."""
        return name in self.variables or name.startswith(_VARIABLES)


NO_SECRETS = OwnSecrets()


def own_secrets(file: Path, given: Mapping[str, str]) -> OwnSecrets:
    """Return what is the worker's, from its file and the properties in it with their references.

    That is the file itself, each file that a property names (key stores, users), and each target of a reference.
    """
    files = {os.path.realpath(file)}
    entries: set[tuple[str, str]] = set()
    variables: set[str] = set()
    for value in given.values():
        if Path(value.strip()).is_absolute() and Path(value.strip()).is_file():
            files.add(os.path.realpath(value.strip()))
        for provider, path, key in references(value):
            kind = given.get(f"config.providers.{provider}.class", "").rpartition(".")[2]
            if kind == "EnvVarConfigProvider":
                variables.add(key)
            elif kind == "FileConfigProvider":
                entries.add((os.path.realpath(path), key))
            elif kind == "DirectoryConfigProvider":
                files.add(os.path.realpath(f"{path}/{key}"))
    return OwnSecrets(frozenset(files), frozenset(entries), frozenset(variables))
