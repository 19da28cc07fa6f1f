"""Names of lake tables: ``collection.name.format`` as in Debezium's JDBC sink, plus ``table.namespace``."""

from __future__ import annotations

import re
from typing import Any

from headrace.core.connect.config_validators import InvalidValue
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import OWN_PREFIX, TableId

KEY = "collection.name.format"
NAMESPACE = "table.namespace"
_SHOWN = 200
"""Characters of a name that a message repeats."""
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_SEPARATES = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]")
_VARIABLES = ("topic", "source.name", "source.db", "source.schema", "source.table")


class TableNaming:
    """Make table names from topics and source tables. Raises ConfigError for an unknown variable."""

    def __init__(self, pattern: str) -> None:
        unknown = [variable for variable in _VARIABLE.findall(pattern) if variable not in _VARIABLES]
        if unknown:
            known = ", ".join(f"${{{variable}}}" for variable in _VARIABLES)
            raise ConfigError(f"{KEY}: ${{{unknown[0]}}} is not known; use {known}", KEY)
        if problem := path_problem(_VARIABLE.sub("_", pattern).replace(".", "_")):
            raise ConfigError(f"{KEY}: {problem}", KEY)
        self._pattern = pattern

    @property
    def by_source(self) -> bool:
        """Whether names depend on the source table, so that one topic may feed several tables."""
        return "${source." in self._pattern

    def name(self, topic: str, table: TableId) -> str:
        """Return the table's name without its namespace; dots of the topic become underscores.

        Raises ConfigError for a name that cannot be a folder of the namespace: sources and transforms choose the name.
        """
        values = dict(zip(_VARIABLES, (topic, table.name, table.database, table.schema, table.table), strict=True))
        name = _VARIABLE.sub(lambda variable: values[variable[1]], self._pattern).replace(".", "_")
        if problem := path_problem(name):
            raise ConfigError(
                f"topic {topic}: the name of its lake table {name[:_SHOWN]!r} {problem}; change {KEY}, or rename the "
                "topic with a transform",
                KEY,
            )
        return name


def path_problem(name: str) -> str | None:
    """Return why ``name`` is not a valid name of a namespace or table, which is one folder; None if it is valid."""
    if name in ("", ".", ".."):
        return "is empty, . or .."
    if _SEPARATES.search(name):
        return "contains / or \\ or a control character"
    if OWN_PREFIX in name:
        return f"contains {OWN_PREFIX}, which names Headrace's own tables"
    return None


def check_table_path(namespace: str, name: str) -> None:
    """Raise ConfigError unless namespace and table are folders of the warehouse and of the namespace."""
    for key, part in ((NAMESPACE, namespace), (KEY, name)):
        if problem := path_problem(part):
            raise ConfigError(f"{key}: the name {part[:_SHOWN]!r} {problem}; choose another one", key)


def namespace(name: str, value: Any) -> None:
    """Validate the option ``table.namespace``."""
    if value is not None and (problem := path_problem(value)):
        raise InvalidValue(f"Invalid value {value[:_SHOWN]} for configuration {name}: the name {problem}")


def table_of_topic(topic: str, database: str) -> TableId | None:
    """Return the source table of a topic that Debezium named ``<prefix>.<schema>.<table>``, None for other names."""
    parts = topic.rsplit(".", 2)
    if len(parts) != 3 or not all(parts):
        return None
    prefix, schema, table = parts
    return TableId(prefix, database, schema, table)
