"""Config providers: resolve ``${provider:path:key}`` in the values of options (``connect.md`` section 10).

Configurations are stored, returned and compared with their references. References are resolved when a configuration is
validated and at each start of a task, so a rotated secret applies from the next start. Answers, messages and logs never
contain a resolved value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.config.reselect import bare_names
from headrace.config.validation import free_key
from headrace.core.connect.config_def import ConfigInfo, ConfigInfos, ConfigValue, parse_list
from headrace.core.connect.config_references import replace_references
from headrace.core.connect.properties import parse_properties
from headrace.core.connect.suggestions import suggestion
from headrace.core.model.errors import ConfigError

Properties = Mapping[str, str | None]
Provider = Callable[[str, str], str | None]
"""Returns the value of (path, key), or None. Raises ConfigError for a path that cannot be read."""

_LIST = "config.providers"
_MIN_HIDDEN_LENGTH = 4
"""Shorter values occur in messages by chance and are not replaced."""


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A configuration with its references resolved.

    ``given`` has the values with references by key. ``problems`` has an error message for each key whose reference
    cannot be resolved.
    """

    properties: dict[str, str | None]
    given: Mapping[str, str]
    problems: Mapping[str, str]

    def hide(self, infos: ConfigInfos) -> ConfigInfos:
        """Return ``infos`` with the references instead of resolved values, and a general error for an invalid value."""
        bare = bare_names(self.properties)
        given = {bare[name]: value for name, value in self.given.items()}
        problems = {bare[name]: problem for name, problem in self.problems.items()}
        unlisted = problems.keys() - {info.definition.name for info in infos.configs}
        added = [ConfigInfo(free_key(name), ConfigValue(name, None)) for name in problems if name in unlisted]
        configs = [self._hidden(info, given, problems) for info in (*infos.configs, *added)]
        return replace(infos, configs=tuple(configs))

    def _hidden(self, info: ConfigInfo, given: Mapping[str, str], problems: Mapping[str, str]) -> ConfigInfo:
        name = info.definition.name
        if name not in given:
            return replace(info, value=replace(info.value, errors=tuple(map(self._without_values, info.value.errors))))
        wrong = (
            f"Invalid value for configuration '{name}': the value resolved from the config provider reference failed "
            "validation"
        )
        errors = (problems[name],) if name in problems else (wrong,) if info.value.errors else ()
        return replace(info, value=replace(info.value, value=given[name], recommended_values=(), errors=errors))

    def _without_values(self, message: str) -> str:
        for name, given in self.given.items():
            resolved = (self.properties[name] or "").strip()  # messages contain stripped values
            message = message.replace(resolved, given) if len(resolved) >= _MIN_HIDDEN_LENGTH else message
        return message


class ConfigProviders:
    """The config providers that a worker file declares."""

    def __init__(self, providers: Mapping[str, Provider] | None = None) -> None:
        self._providers = dict(providers or {})

    def resolve(self, properties: Properties) -> ResolvedConfig:
        """Resolve all values. Never raises: ``problems`` has the errors."""
        found: dict[str, str | None] = {}
        given: dict[str, str] = {}
        problems: dict[str, str] = {}
        for name, value in properties.items():
            try:
                found[name] = replace_references(value, self._lookup) if value else value
            except ConfigError as error:
                found[name], problems[name] = value, str(error)
            if value is not None and (found[name] != value or name in problems):
                given[name] = value
        return ResolvedConfig(found, given, problems)

    def properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the resolved values. Raises ConfigError with the key of a reference that cannot be resolved."""
        resolved = self.resolve(properties)
        for name, problem in resolved.problems.items():
            raise ConfigError(f"{name}: {problem}", name)
        return {name: value for name, value in resolved.properties.items() if value is not None}

    def _lookup(self, provider: str, path: str, key: str) -> str | None:
        return self._providers[provider](path, key) if provider in self._providers else None


def config_providers(
    worker: Mapping[str, str], environment: Callable[[str], str | None] = os.environ.get
) -> ConfigProviders:
    """Return the providers that a worker file declares with ``config.providers`` and its keys. Raises ConfigError."""
    names = parse_list(worker.get(_LIST, ""))
    return ConfigProviders({name: _provider(worker, name, environment) for name in names})


def _provider(worker: Mapping[str, str], name: str, environment: Callable[[str], str | None]) -> Provider:
    option = f"{_LIST}.{name}.class"
    wanted, prefix = worker.get(option, ""), f"{_LIST}.{name}.param."
    options = {key[len(prefix) :]: value for key, value in worker.items() if key.startswith(prefix)}
    simple = wanted.removeprefix("org.apache.kafka.common.config.provider.")
    if simple in ("FileConfigProvider", "DirectoryConfigProvider"):
        allowed = _Allowed(parse_list(options.get("allowed.paths", "")))
        return _File(allowed) if simple == "FileConfigProvider" else _Directory(allowed)
    if simple == "EnvVarConfigProvider":
        return _Environment(environment, options.get("allowlist.pattern", ""))
    known = ("FileConfigProvider", "DirectoryConfigProvider", "EnvVarConfigProvider")
    raise ConfigError(f"{option}: there is no config provider {wanted!r}. {suggestion(simple, known)}", option)


class _Allowed:
    """``allowed.paths``: only files below these folders are read; without the option, all files."""

    def __init__(self, folders: list[str]) -> None:
        self._folders = [Path(os.path.normpath(folder)) for folder in folders]

    def path(self, path: str) -> Path | None:
        """Return the normalized path, or None if it is not allowed."""
        wanted = Path(os.path.normpath(path))
        allowed = not self._folders or any(wanted.is_relative_to(folder) for folder in self._folders)
        return wanted if path and allowed else None


class _File:
    """``${file:/path/x.properties:key}``: the value of a key in a properties file."""

    def __init__(self, allowed: _Allowed) -> None:
        self._allowed = allowed

    def __call__(self, path: str, key: str) -> str | None:
        file = self._allowed.path(path)
        try:
            return None if file is None else parse_properties(file.read_text(encoding="utf-8")).get(key)
        except (OSError, ValueError) as error:
            raise ConfigError(f"Could not read properties from file {file}") from error


class _Directory:
    """``${dir:/mnt/secret:filename}``: the content of a file, for secrets that Kubernetes mounts."""

    def __init__(self, allowed: _Allowed) -> None:
        self._allowed = allowed

    def __call__(self, path: str, key: str) -> str | None:
        folder = self._allowed.path(path)
        if folder is None or Path(key).name != key or not (folder / key).is_file():
            return None
        try:
            return (folder / key).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Could not read file {folder / key}") from error


class _Environment:
    """``${env:NAME}``: an environment variable. The whole name must match ``allowlist.pattern`` if that is set."""

    def __init__(self, environment: Callable[[str], str | None], pattern: str) -> None:
        self._environment = environment
        try:
            self._pattern = re.compile(pattern or ".*")
        except re.error as error:
            raise ConfigError(f"allowlist.pattern is not a regular expression: {error}") from error

    def __call__(self, _path: str, key: str) -> str | None:
        return self._environment(key) if self._pattern.fullmatch(key) else None
