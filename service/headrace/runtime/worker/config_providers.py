"""Config providers: resolve ``${provider:path:key}`` in the values of options (``connect.md`` section 10).

Configurations are stored, returned and compared with their references. References are resolved when a configuration is
validated and at each start of a task, so a rotated secret applies from the next start. Passwords of databases are
resolved for each connection. Answers, messages and logs never contain a resolved value.

Any client of the REST API may create connectors, so they read only what the worker file allows (``config_providers``).
The worker file itself is the operator's (``worker_providers``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.config import SinkConnectorConfig
from headrace.config.reselect import bare_names, with_current_passwords
from headrace.config.validation import free_key
from headrace.config.values import NO_SECRETS, OwnSecrets
from headrace.core.connect.config_def import ConfigInfo, ConfigInfos, ConfigValue, parse_list
from headrace.core.connect.properties import parse_properties, replace_references
from headrace.core.connect.typed_options import suggestion
from headrace.core.model.errors import ConfigError, Retriable

Properties = Mapping[str, str | None]
Provider = Callable[[str, str], str | None]
"""Returns the value of (path, key), or None. Raises ConfigError for a path that cannot be read."""

_LIST = "config.providers"
_LARGEST = 1024 * 1024
"""Bytes of a file with secrets."""
_INVALID = (
    "Invalid value for configuration '{}': the value resolved from the config provider reference failed validation"
)
_MIN_HIDDEN_LENGTH = 4
"""Shorter values occur in messages by chance and are not replaced."""


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A configuration with its references resolved.

    ``given`` has the values with references by key. ``problems`` has an error message for each key whose reference
    cannot be resolved. ``masks`` has the text to show instead of each resolved value, the longest value first.
    """

    properties: dict[str, str | None]
    given: Mapping[str, str]
    problems: Mapping[str, str]
    masks: Mapping[str, str] = field(repr=False)

    def hide(self, infos: ConfigInfos) -> ConfigInfos:
        """Return ``infos`` with the references instead of resolved values, and a general error for an invalid value."""
        bare = bare_names(self.properties)
        given = {bare[name]: value for name, value in self.given.items()}
        problems = {bare[name]: problem for name, problem in self.problems.items()}
        unlisted = problems.keys() - {info.definition.name for info in infos.configs}
        added = [ConfigInfo(free_key(name), ConfigValue(name, None)) for name in problems if name in unlisted]
        configs = []
        for info in (*infos.configs, *added):
            definition, value, name = info.definition, info.value, info.definition.name
            if name in given:
                errors = (problems[name],) if name in problems else (_INVALID.format(name),) if value.errors else ()
                value = replace(value, value=given[name], recommended_values=(), errors=errors)
            else:
                value = replace(value, errors=tuple(map(self._without_values, value.errors)))
            # The names contain resolved values where the alias of a transform was resolved.
            masked: dict[str, Any] = {
                member: self._without_values(text)
                for member in ("name", "display_name", "group", "doc")
                if (text := getattr(definition, member)) is not None
            }
            value = replace(value, name=self._without_values(value.name))
            configs.append(ConfigInfo(replace(definition, **masked), value))
        groups = dict.fromkeys(map(self._without_values, infos.groups))
        return replace(infos, groups=tuple(groups), configs=tuple(configs))

    def _without_values(self, message: str) -> str:
        for resolved, shown in self.masks.items():
            message = message.replace(resolved, shown)
        return message


class ConfigProviders:
    """The config providers that a worker file declares."""

    def __init__(self, providers: Mapping[str, Provider] | None = None) -> None:
        self._providers = dict(providers or {})

    def resolve(self, properties: Properties) -> ResolvedConfig:
        """Resolve all values. Never raises: ``problems`` has the errors."""
        values: dict[str, str | None] = {}
        given: dict[str, str] = {}
        problems: dict[str, str] = {}
        masks: dict[str, str] = {}

        def lookup(provider: str, path: str, key: str) -> str | None:
            resolved = self._providers[provider](path, key) if provider in self._providers else None
            for part in (resolved, *resolved.split(",")) if resolved else ():  # options may be lists
                if len(part.strip()) >= _MIN_HIDDEN_LENGTH:
                    masks[part.strip()] = f"${{{provider}:{path}:{key}}}" if path else f"${{{provider}:{key}}}"
            return resolved

        for name, value in properties.items():
            try:
                values[name] = replace_references(value, lookup) if value else value
            except ConfigError as error:
                values[name], problems[name] = value, str(error)
            if value is not None and (values[name] != value or name in problems):
                given[name] = value
        longest_first = dict(sorted(masks.items(), key=lambda mask: -len(mask[0])))
        return ResolvedConfig(values, given, problems, longest_first)

    def properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the resolved values. Raises ConfigError with the key of a reference that cannot be resolved."""
        resolved = self.resolve(properties)
        for name, problem in resolved.problems.items():
            raise ConfigError(f"{name}: {problem}", name)
        return {name: value for name, value in resolved.properties.items() if value is not None}

    def with_current_passwords(self, config: SinkConnectorConfig, properties: Properties) -> SinkConnectorConfig:
        """Return a configuration whose database passwords are resolved again for each connection.

        ``properties`` is the configuration with its references. A provider that cannot be read raises Retriable then.
        """

        def current() -> Properties:
            passwords = {
                name: value
                for name, value in properties.items()
                if name.endswith(".password") and value is not None and "${" in value
            }
            resolved = self.resolve(passwords)
            for name, problem in resolved.problems.items():
                raise Retriable(f"{name}: {problem}")
            return {**properties, **resolved.properties}

        return replace(config, reselect=with_current_passwords(config.reselect, current))


def worker_providers(
    worker: Mapping[str, str], environment: Callable[[str], str | None] = os.environ.get
) -> ConfigProviders:
    """Return the providers for the worker file itself, whose author may read everything that the worker may.

    ``allowed.paths`` and ``allowlist.pattern`` apply if they are set. Raises ConfigError.
    """
    return ConfigProviders({name: _provider(worker, name, environment, None) for name in _names(worker)})


def config_providers(
    worker: Mapping[str, str],
    own_secrets: OwnSecrets = NO_SECRETS,
    environment: Callable[[str], str | None] = os.environ.get,
) -> ConfigProviders:
    """Return the providers for connectors, which read only what the worker file allows. Raises ConfigError.

    Without ``allowed.paths`` or ``allowlist.pattern`` that is nothing, and never the worker's ``own_secrets``.
    """
    return ConfigProviders({name: _provider(worker, name, environment, own_secrets) for name in _names(worker)})


def _names(worker: Mapping[str, str]) -> list[str]:
    return parse_list(worker.get(_LIST, ""))


def _provider(
    worker: Mapping[str, str], name: str, environment: Callable[[str], str | None], own_secrets: OwnSecrets | None
) -> Provider:
    option = f"{_LIST}.{name}.class"
    wanted, prefix = worker.get(option, ""), f"{_LIST}.{name}.param."
    simple = wanted.removeprefix("org.apache.kafka.common.config.provider.")
    if simple not in _CLASSES:
        raise ConfigError(f"{option}: there is no config provider {wanted!r}. {suggestion(simple, _CLASSES)}", option)
    limit = f"{prefix}{_CLASSES[simple]}"
    for key in worker:
        if key.startswith(prefix) and key != limit:
            raise ConfigError(f"{key}: {simple} has no such parameter; it has {_CLASSES[simple]}", key)
    given = worker.get(limit, "").strip()
    if not given and own_secrets is not None:

        def refuse(path: str, key: str) -> str | None:
            raise ConfigError(f"connectors may not use this config provider: the worker does not set {limit}")

        return refuse
    if simple == "EnvVarConfigProvider":
        return _Environment(environment, limit, given, own_secrets)
    return (_File if simple == "FileConfigProvider" else _Directory)(_Allowed(limit, parse_list(given), own_secrets))


_CLASSES = {
    "FileConfigProvider": "allowed.paths",
    "DirectoryConfigProvider": "allowed.paths",
    "EnvVarConfigProvider": "allowlist.pattern",
}
"""The config providers, and what limits each of them."""


class _Allowed:
    """``allowed.paths``: only files below these folders are read, after symbolic links; without any, all files."""

    def __init__(self, limit: str, folders: list[str], own_secrets: OwnSecrets | None) -> None:
        for folder in folders:
            if not Path(folder).is_absolute():
                raise ConfigError(f"{limit}: {folder!r} is not an absolute path", limit)
        self._limit = limit
        self._folders = folders
        self._own_secrets = own_secrets

    def content(self, path: str, *, key: str | None) -> str | None:
        """Return the text of a file, None if it does not exist.

        ``key`` is what is read of it, None for all of it. Raises ConfigError for a file that may not be read, and for
        one that is no text or too large.
        """
        file = Path(os.path.realpath(path))
        folders = (os.path.realpath(folder) for folder in self._folders)  # links to folders may change
        if self._folders and not any(file.is_relative_to(folder) for folder in folders):
            raise ConfigError(f"{path} is not below a folder of {self._limit}")
        if self._own_secrets is not None and self._own_secrets.contain(str(file), key):
            raise ConfigError(f"{path} is part of the worker's own configuration, which connectors may not read")
        if not file.exists():
            return None
        if not file.is_file():
            raise OSError("it is not a file")
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise OSError("it is larger than a secret")
        return content.decode("utf-8")


class _File:
    """``${file:/path/x.properties:key}``: the value of a key in a properties file."""

    def __init__(self, allowed: _Allowed) -> None:
        self._allowed = allowed

    def __call__(self, path: str, key: str) -> str | None:
        if not path:
            return None
        try:
            content = self._allowed.content(path, key=key)
            if content is None:
                raise FileNotFoundError
            return parse_properties(content).get(key)
        except (OSError, ValueError) as error:
            raise ConfigError(f"Could not read properties from file {os.path.normpath(path)}") from error


class _Directory:
    """``${dir:/mnt/secret:filename}``: the content of a file, for secrets that Kubernetes mounts."""

    def __init__(self, allowed: _Allowed) -> None:
        self._allowed = allowed

    def __call__(self, path: str, key: str) -> str | None:
        if not path or Path(key).name != key:
            return None
        try:
            return self._allowed.content(f"{path}/{key}", key=None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"Could not read file {os.path.normpath(path)}/{key}") from error


class _Environment:
    """``${env:NAME}``: an environment variable. The complete name must match ``allowlist.pattern`` if that is set."""

    def __init__(
        self, environment: Callable[[str], str | None], limit: str, pattern: str, own_secrets: OwnSecrets | None
    ) -> None:
        self._environment = environment
        self._limit = limit
        self._own_secrets = own_secrets
        try:
            self._pattern = re.compile(pattern or ".*")
        except re.error as error:
            raise ConfigError(f"{limit}: {pattern!r} is not a regular expression: {error}", limit) from error

    def __call__(self, _path: str, key: str) -> str | None:
        if not self._pattern.fullmatch(key):
            raise ConfigError(f"the environment variable {key} does not match {self._limit}")
        if self._own_secrets is not None and self._own_secrets.contain_variable(key):
            raise ConfigError(f"the environment variable {key} belongs to the worker, and connectors may not read it")
        return self._environment(key)
