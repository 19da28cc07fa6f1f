"""The source connector, as Kafka Connect describes it: Debezium's settings and release.

Tests: ``tests/unit/core/doctor/test_debezium.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import total_ordering

from headrace.core.model.errors import ConfigError

_CLASS = re.compile(r"io\.debezium\.connector\.(\w+)\.")
_BY_ALIAS = {
    "Postgres": "postgresql",
    "MySql": "mysql",
    "MariaDb": "mariadb",
    "Oracle": "oracle",
    "SqlServer": "sqlserver",
}
"""By the short name of a class, without ``Connector``: Kafka Connect accepts both (``PluginUtils.aliases``)."""
_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)\.(Alpha|Beta|CR|Final)(\d*)")
_STAGES = ("Alpha", "Beta", "CR", "Final")


@total_ordering
@dataclass(frozen=True, slots=True)
class Release:
    """A release of Debezium, ordered as they follow each other: ``3.7.0.Alpha2`` < ``3.7.0.CR1`` < ``3.7.0.Final``."""

    text: str

    @property
    def branch(self) -> tuple[int, int]:
        """The branch that gets fixes of its own: (3, 7)."""
        major, minor, *_ = self._order()
        return major, minor

    def __lt__(self, other: Release) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[int, int, int, int, int]:
        found = _RELEASE.fullmatch(self.text)
        if found is None:
            raise ValueError(self.text)
        major, minor, patch, stage, number = found.groups()
        return int(major), int(minor), int(patch), _STAGES.index(stage), int(number or 0)


def release(text: str | None) -> Release | None:
    """Return the release of a connector's version, None for an unknown one (a build of somebody else, a snapshot)."""
    return Release(text) if text and _RELEASE.fullmatch(text) else None


@dataclass(frozen=True, slots=True)
class SourceConnector:
    """A connector of Debezium. ``version`` is that of its plug-in, None if it is unknown."""

    name: str
    config: Mapping[str, str]
    version: str | None = None

    @property
    def system(self) -> str:
        """The database system as in the source block (``postgresql``); empty if the class is not Debezium's."""
        name = self.config.get("connector.class", "")
        found = _CLASS.match(name)
        return found[1] if found else _BY_ALIAS.get(name.removesuffix("Connector"), "")

    def value(self, option: str, default: str = "") -> str | None:
        """Return the value in lower case; None if a config provider inserts it (``${file:…}``), so it is unknown."""
        return setting(self.config, option, default)

    def shown(self, option: str, default: str) -> str:
        """Return what a finding says of an option: its value, or that it is not set and what its default is."""
        text = self.config.get(option)
        return f"{option} is not set, and the default is {default}" if text is None else f"{option}={text}"

    def words(self, option: str, default: str = "") -> list[str]:
        """Return the parts of a list; none if they are unknown."""
        text = self.value(option, default)
        return [word.strip() for word in (text or "").split(",") if word.strip()]

    def transforms(self, class_name: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield name and options of each transform of a class."""
        for name in self.config.get("transforms", "").split(","):
            prefix = f"transforms.{name.strip()}."
            if self.config.get(f"{prefix}type") == class_name:
                own = {key.removeprefix(prefix): text for key, text in self.config.items() if key.startswith(prefix)}
                yield name.strip(), own


def source_connector(document: object, default_name: str) -> SourceConnector:
    """Return the connector in the answer of ``GET /connectors/{name}``, or in a configuration alone.

    ``version`` beside the configuration is the version of the plug-in. Raises ConfigError if the connector is none of
    Debezium's.
    """
    fields: Mapping[str, object] = document if isinstance(document, dict) else {}
    config = fields.get("config", fields)
    if not isinstance(config, dict) or not isinstance(config.get("connector.class"), str):
        raise ConfigError("has no connector.class, so it describes no connector")
    texts = {str(key): str(value) for key, value in config.items() if value is not None}
    version = fields.get("version") if "config" in fields else None
    name = str(fields.get("name") or texts.get("name") or default_name)
    connector = SourceConnector(name, texts, str(version) if version else None)
    if not connector.system:
        raise ConfigError(f"{texts['connector.class']} is not a connector of Debezium")
    return connector


def setting(config: Mapping[str, str], option: str, default: str = "") -> str | None:
    """Return a value in lower case; None if a config provider inserts it."""
    text = config.get(option, default)
    return None if "${" in text else text.strip().lower()
