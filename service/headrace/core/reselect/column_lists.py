"""Which columns reselect selects, and which identify a row: the options with patterns.

The syntax of the patterns is that of Debezium's ``ReselectColumnsPostProcessor`` (``reselect.md`` section 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.core.connect.java_patterns import OnlyJava, python_pattern
from headrace.core.connect.regex_cost import TooCostly, check_cost
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId


class ColumnFilter:
    """``reselect.columns.include.list`` and ``.exclude.list``: each part a regex over ``schema.table:column``.

    Matching is whole-text and ASCII case-insensitive, as in Debezium (section 3.3). Without lists all columns match.
    """

    def __init__(self, include: str = "", exclude: str = "") -> None:
        if include and exclude:
            raise ConfigError(
                "reselect.columns.include.list and reselect.columns.exclude.list are both set; keep one of them",
                "reselect.columns.exclude.list",
            )
        self._include = _patterns(include, "reselect.columns.include.list")
        self._exclude = _patterns(exclude, "reselect.columns.exclude.list")

    def matches(self, table: TableId, column: str) -> bool:
        """Whether a column is selected. ``table.schema`` is empty for databases without schemas (MySQL)."""
        name = f"{table.schema or table.database}.{table.table}:{column}"
        if self._include:
            return any(pattern.fullmatch(name) for pattern in self._include)
        return not any(pattern.fullmatch(name) for pattern in self._exclude)


class KeyColumns:
    """``reselect.key.columns``: ``schema.table:column,column;…``, in the form of Debezium's ``message.key.columns``.

    The part before the colon is a regex over ``schema.table``, matched like those of the column lists. Raises
    ConfigError for an entry without columns.
    """

    def __init__(self, text: str = "") -> None:
        entries = [entry.strip() for entry in text.split(";") if entry.strip()]
        self._entries = [_key_entry(entry) for entry in entries]

    def of(self, table: TableId) -> tuple[str, ...]:
        """The columns that identify a row of ``table``, or none where the list does not name it."""
        name = f"{table.schema or table.database}.{table.table}"
        return next((columns for pattern, columns in self._entries if pattern.fullmatch(name)), ())


def _key_entry(entry: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    key = "reselect.key.columns"
    pattern, _, names = entry.rpartition(":")
    columns = tuple(name.strip() for name in names.split(",") if name.strip())
    if not pattern.strip() or not columns:
        raise ConfigError(f"{key}: {entry!r} is not schema.table:column,column", key)
    return _compile(pattern.strip(), key), columns


def _patterns(text: str, key: str) -> tuple[re.Pattern[str], ...]:
    return tuple(_compile(part, key) for part in _split(text, key))


def _compile(part: str, key: str) -> re.Pattern[str]:
    try:
        pattern = python_pattern(part)
        check_cost(pattern, re.IGNORECASE)
        return re.compile(pattern, re.IGNORECASE | re.ASCII)
    except OnlyJava as error:
        raise ConfigError(f"{key}: {part!r} is not supported: {error}", key) from error
    except TooCostly as error:
        raise ConfigError(f"{key}: {part[:200]!r} may take very long: {error}", key) from error
    except re.error as error:
        raise ConfigError(f"{key}: {part!r} is not a regular expression: {error}", key) from error


def _split(text: str, key: str) -> Iterator[str]:
    r"""Parts between commas; ``\,`` is a comma, every other backslash pair stays as it is."""
    part, letters = "", iter(text)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters, None)
            if escaped is None:
                raise ConfigError(f"{key}: the list ends in a lone backslash", key)
            part += "," if escaped == "," else letter + escaped
        elif letter == ",":
            yield from [part.strip()] if part.strip() else []
            part = ""
        else:
            part += letter
    yield from [part.strip()] if part.strip() else []
