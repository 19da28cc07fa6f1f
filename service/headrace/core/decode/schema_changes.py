"""Read records of a connector's schema-change topic: altered tables, and changes without row events.

Oracle's, MySQL's, MariaDB's and SQL Server's connectors write them, into the topic that is named like ``topic.prefix``.
The cached rows and the catalog of such a table are invalid (``reselect.md`` sections 1.1 and 5.2). The columns
themselves come with the next event of a row. Rows that do not change get the default of an added column, if the
statement contains one that can be read exactly (``merge.md`` section 13); all else becomes a note for the operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.core.decode.json_converter import parse_plain
from headrace.core.model.absent_columns import NUMBER, TEXT, ColumnDefault
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import TableId
from headrace.core.model.notes import Note
from headrace.core.model.positions import position_format, positions

_TOKEN = re.compile(
    r"""(?P<skip>\s+|/\*.*?\*/|--[^\n]*|\#[^\n]*)
    |(?P<text>'(?:[^'\\]|''|\\.)*')
    |(?P<number>\d+(?:\.\d+)?(?![\w$]))
    |(?P<name>`(?:[^`]|``)*`|"(?:[^"]|"")*"|\[[^\]]*\])
    |(?P<word>[\w$@][\w$@\#]*)
    |(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)

_NO_COLUMNS = frozenset(
    {"CHECK", "CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "PARTITION", "PERIOD", "PRIMARY", "SPATIAL"}
    | {"SUPPLEMENTAL", "SYSTEM", "UNIQUE"}
)
"""Words after ADD in a clause that adds no column."""
_OTHER_CLAUSES = frozenset(
    {"ALGORITHM", "ALTER", "AUTO_INCREMENT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "COMPRESS", "CONVERT"}
    | {"DEFAULT", "DISABLE", "DROP", "ENABLE", "ENGINE", "FORCE", "LOCK", "LOGGING", "MODIFY", "MOVE", "NOCOMPRESS"}
    | {"NOLOGGING", "NOPARALLEL", "NOWAIT", "ORDER", "PARALLEL", "PCTFREE", "ROW", "ROW_FORMAT", "SHRINK", "TABLESPACE"}
    | {"VALIDATE", "WAIT", "WITH", "WITHOUT"}
)
"""Clauses that change no cell of a row without an event of it, or no cell at all."""
_ATTRIBUTES = frozenset(
    {"AFTER", "CHECK", "COLUMN_FORMAT", "COMMENT", "CONSTRAINT", "FIRST", "INVISIBLE", "KEY", "NOT", "NULL", "PRIMARY"}
    | {"REFERENCES", "UNIQUE", "VISIBLE"}
)
"""Words that may follow the default in a column's definition."""
_OTHER_STATEMENTS = frozenset({"ANALYZE", "COMMENT", "CREATE", "DROP", "GRANT", "REVOKE"})
"""Statements on a table that change no cell of it without an event (CREATE INDEX, COMMENT ON)."""


@dataclass(frozen=True, slots=True)
class Added:
    """An added column. ``default`` is the text of the literal in its definition, a number or a text.

    ``reads`` is number or text for a literal, null for none at all, and empty for what is not read (an expression).
    """

    name: str
    reads: str = "null"
    default: str = ""


@dataclass(frozen=True, slots=True)
class Altered:
    """The columns that a statement adds, and those that it renames, as (old, new)."""

    added: tuple[Added, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Token:
    """``name`` of an identifier, without its quotes; ``word`` is it in upper case unless it was quoted.

    A literal is a ``text`` or a ``number``.
    """

    name: str = ""
    word: str = ""
    mark: str = ""
    text: str | None = None
    number: str = ""


def parse_alteration(ddl: str) -> Altered | None:
    """Return the changes of a statement to a table's columns; None for a statement that cannot be parsed."""
    tokens = list(_tokens(ddl))
    words = [token.word for token in tokens]
    if not words or words[0] in _OTHER_STATEMENTS:
        return Altered() if words else None
    if words[0] != "ALTER" or "TABLE" not in words[:4]:
        return None
    tokens = tokens[words.index("TABLE") + 1 :]
    if [token.word for token in tokens[:2]] == ["IF", "EXISTS"]:
        tokens = tokens[2:]
    begin = 1
    while begin < len(tokens) and tokens[begin].mark == ".":  # the name of the table may be qualified
        begin += 2
    clauses = []
    for clause in map(_clause, _split(tokens[begin:])):
        if clause is None:
            return None
        clauses.append(clause)
    return Altered(
        tuple(column for clause in clauses for column in clause.added),
        tuple(names for clause in clauses for names in clause.renamed),
    )


def _tokens(ddl: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(ddl.rstrip().rstrip(";")):
        text = match[0]
        if match["word"]:
            yield _Token(text, text.upper())
        elif match["name"]:
            quote = text[-1]
            yield _Token(text[1:-1].replace(quote * 2, quote))
        elif match["mark"]:
            yield _Token(mark=text)
        elif match["number"]:
            yield _Token(number=text)
        elif match["text"]:
            yield _Token(text=text[1:-1].replace("''", "'"))


def _split(tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    """Split at the commas outside of parentheses."""
    depth, begin = 0, 0
    for place, token in enumerate(tokens):
        depth += (token.mark == "(") - (token.mark == ")")
        if token.mark == "," and depth == 0:
            yield tokens[begin:place]
            begin = place + 1
    yield tokens[begin:]


def _clause(tokens: Sequence[_Token]) -> Altered | None:
    match [token.word for token in tokens[:2]]:
        case ["ADD", second]:
            return None if second == "ADD" else _parse_added(_without(tokens[1:], "COLUMN"))
        case ["CHANGE", _]:
            return _parse_renamed(_without(tokens[1:], "COLUMN"), 1)
        case ["RENAME", "COLUMN"]:
            return _parse_renamed(tokens[2:], 2)
        case ["RENAME", "INDEX" | "KEY" | "CONSTRAINT" | "PARTITION"]:
            return Altered()
        case [first, *_] if first in _OTHER_CLAUSES:
            return Altered()
    return None


def _without(tokens: Sequence[_Token], word: str) -> Sequence[_Token]:
    """Return the tokens after an optional word and IF [NOT] EXISTS."""
    place = int(tokens[:1] != [] and tokens[0].word == word)
    if place < len(tokens) and tokens[place].word == "IF":
        place += 3 if tokens[place + 1 : place + 2] and tokens[place + 1].word == "NOT" else 2
    return tokens[place:]


def _parse_added(tokens: Sequence[_Token]) -> Altered | None:
    if not tokens:
        return None
    is_list = tokens[0].mark == "(" and tokens[-1].mark == ")"
    definitions = _split(tokens[1:-1]) if is_list else [tokens]
    columns = [
        _column(definition) for definition in definitions if definition[:1] and definition[0].word not in _NO_COLUMNS
    ]
    return Altered(added=tuple(columns)) if all(column.name for column in columns) else None


def _column(definition: Sequence[_Token]) -> Added:
    """Parse the definition of a column: a name, a type, and optionally DEFAULT."""
    words = [token.word for token in definition]
    name = definition[0].name
    if "DEFAULT" not in words[1:]:
        return Added(name)
    value = list(definition[words.index("DEFAULT", 1) + 1 :])
    sign = "-" if value[:1] and value[0].mark == "-" else ""
    value = value[1:] if sign or (value[:1] and value[0].mark == "+") else value
    # Only a literal counts: another token after it must begin another attribute of the column.
    if not value or (value[1:] and value[1].word not in _ATTRIBUTES):
        return Added(name, "")
    literal = value[0]
    if literal.text is not None and "\\" not in literal.text and not sign:
        return Added(name, "text", literal.text)
    number = {"TRUE": "1", "FALSE": "0"}.get(literal.word, literal.number)
    if number:
        return Added(name, "number", sign + number)
    return Added(name, "null" if literal.word == "NULL" else "")


def _parse_renamed(tokens: Sequence[_Token], distance: int) -> Altered | None:
    """Parse ``CHANGE old new …`` or ``RENAME COLUMN old TO new``."""
    if len(tokens) <= distance or not (tokens[0].name and tokens[distance].name):
        return None
    old, new = tokens[0].name, tokens[distance].name
    return Altered() if old.lower() == new.lower() else Altered(renamed=((old, new),))


FIELDS = frozenset({"databaseName", "ddl", "tableChanges"})
"""The fields that only records of schema changes have."""

_FILL = "; headrace verify --repair fills it where it can read the database, an ad hoc snapshot of the table everywhere"
ADDED = "a column was added with a default, which no event contains: in rows that do not change it is null" + _FILL
RENAMED = (
    "a column was renamed without an event: in rows that do not change, the new one is null, and the old one stays"
    + _FILL
)
UNREAD = (
    "a table was altered by a statement that Headrace does not read: what that adds with a default, or renames, is "
    "missing in rows that do not change" + _FILL
)

_NUMBERS = frozenset(
    {"BOOL", "BOOLEAN", "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "DEC", "DECIMAL", "NUMERIC"}
)
_TEXTS = frozenset({"CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"})
"""Types of MySQL and MariaDB whose values events show as statements write them. A FLOAT is not: it is rounded."""
_PART = re.compile(r'"((?:[^"]|"")*)"')


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The change of one table in a record. ``notes`` are for the operator; so are ``unless_filled``, if nobody fills in
    the ``defaults``. ``source`` is the record's source block.
    """

    table: TableId
    source: Mapping[str, Any] = field(default_factory=dict)
    defaults: tuple[ColumnDefault, ...] = ()
    unless_filled: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()

    def position(self, epoch: int) -> bytes:
        """The position of the change among those of rows, NO_POSITION without one. Raises BadRecord."""
        form = position_format(str(self.source.get("connector") or ""))
        fields = [[self.source.get(part.field)] for part in form.parts]
        return bytes(positions(form, epoch, fields, 1)[0])

    def source_time(self, timestamp: int) -> int:
        """The time of the change, in microseconds; ``timestamp`` is the record's, in milliseconds."""
        micros, millis = self.source.get("ts_us"), self.source.get("ts_ms")
        return int(micros) if micros is not None else int(timestamp if millis is None else millis) * 1000


def schema_changes(payload: bytes | SchemaAndValue | None) -> list[SchemaChange]:
    """Return the schema changes in a record, by table; nothing for any other record."""
    try:
        value = None if payload is None else parse_plain(payload)
    except BadRecord:
        return []
    if not isinstance(value, dict) or not value.keys() >= FIELDS:
        return []
    return [_schema_change(value, change) for change in _dicts(value["tableChanges"])]


def _schema_change(value: Mapping[str, Any], change: Mapping[str, Any]) -> SchemaChange:
    source = value.get("source") or {}
    parts = [part.replace('""', '"') for part in _PART.findall(str(change.get("id")))] or [str(change.get("id"))]
    database = value.get("databaseName") or source.get("db") or ""
    table = TableId(str(source.get("name") or ""), str(database), str(value.get("schemaName") or ""), parts[-1])
    of_snapshot = str(source.get("snapshot", "false")).lower() != "false"
    if of_snapshot or change.get("type") != "ALTER":
        return SchemaChange(table)
    columns = _dicts((change.get("table") or {}).get("columns"))  # after the change
    by_name = {str(column.get("name")).lower(): column for column in columns}  # statements may use any case
    name = f"{table.schema or table.database}.{table.table}"
    alteration = parse_alteration(str(value.get("ddl") or ""))
    if alteration is None:
        return SchemaChange(table, source, notes=(Note(UNREAD, name),))
    defaults, unless_filled, notes = [], [], []
    for added in alteration.added:
        column = by_name.get(added.name.lower(), {})
        default, note = _default(added, column), Note(ADDED, f"{name}.{column.get('name', added.name)}")
        if default is not None:
            defaults.append(default)
            unless_filled.append(note)
        elif added.reads != "null" or column.get("optional") is not True or column.get("generated") is True:
            notes.append(note)
    notes += [Note(RENAMED, f"{name}.{by_name.get(new.lower(), {}).get('name', new)}") for _, new in alteration.renamed]
    return SchemaChange(table, source, tuple(defaults), tuple(unless_filled), tuple(notes))


def _dicts(value: object) -> Sequence[dict[str, object]]:
    return [member for member in value if isinstance(member, dict)] if isinstance(value, list) else []


def _default(added: Added, column: Mapping[str, Any]) -> ColumnDefault | None:
    """Return the column's default, if statement and connector agree and events show it as the statement does."""
    expression, kind = column.get("defaultValueExpression"), str(column.get("typeName") or "").upper().partition(" ")[0]
    name = str(column.get("name"))
    if not added.reads or added.reads == "null" or expression is None:
        return None
    if kind in _TEXTS:
        is_same = added.reads == TEXT and expression == added.default and not expression.endswith(" ")
        return ColumnDefault(name, TEXT, added.default) if is_same else None
    number = _exactly(added.default, column.get("scale") or 0) if kind in _NUMBERS else None
    if number is None or _exactly(str(expression), column.get("scale") or 0) != number:
        return None
    return ColumnDefault(name, NUMBER, number)


def _exactly(text: str, scale: int) -> str | None:
    """Format a number with so many decimal places; None for any other text and for more digits."""
    try:
        number = Decimal(text)
        rounded = number.quantize(Decimal(1).scaleb(-scale))
    except InvalidOperation:
        return None
    return f"{rounded:f}" if rounded == number else None
