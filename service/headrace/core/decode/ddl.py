"""Parse the changes of an ALTER TABLE to columns that cause no row events (``merge.md`` section 13).

Reads the statements of MySQL, MariaDB and Oracle clause by clause, just far enough to name the columns that are added
or renamed. A clause that begins with a word that is not known here makes the whole statement one that is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
"""Behind ADD: what is added is no column."""
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
"""What may stand behind the default in a column's definition."""
_OTHER_STATEMENTS = frozenset({"ANALYZE", "COMMENT", "CREATE", "DROP", "GRANT", "REVOKE"})
"""Statements on a table (CREATE INDEX, COMMENT ON) of which the same holds."""


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


def altered(ddl: str) -> Altered | None:
    """Return the changes of a statement to a table's columns; None for a statement that cannot be parsed."""
    tokens = list(_tokens(ddl))
    words = [token.word for token in tokens]
    if not words or words[0] in _OTHER_STATEMENTS:
        return Altered() if words else None
    if words[0] != "ALTER" or "TABLE" not in words[:4]:
        return None
    read = [_clause(clause) for clause in _split(_behind_name(tokens[words.index("TABLE") + 1 :]))]
    clauses = [each for each in read if each is not None]
    if len(clauses) < len(read):
        return None
    return Altered(
        tuple(one for each in clauses for one in each.added), tuple(one for each in clauses for one in each.renamed)
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


def _behind_name(tokens: Sequence[_Token]) -> Sequence[_Token]:
    """Return the clauses after a table's name, which may be qualified."""
    if [token.word for token in tokens[:2]] == ["IF", "EXISTS"]:
        tokens = tokens[2:]
    place = 1
    while place < len(tokens) and tokens[place].mark == ".":
        place += 2
    return tokens[place:]


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
            return None if second == "ADD" else _added(_without(tokens[1:], "COLUMN"))
        case ["CHANGE", _]:
            return _renamed(_without(tokens[1:], "COLUMN"), 1)
        case ["RENAME", "COLUMN"]:
            return _renamed(tokens[2:], 2)
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


def _added(tokens: Sequence[_Token]) -> Altered | None:
    if not tokens:
        return None
    whole = tokens[1:-1] if tokens[0].mark == "(" and tokens[-1].mark == ")" else tokens
    definitions = _split(whole) if whole is not tokens else [tokens]
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


def _renamed(tokens: Sequence[_Token], distance: int) -> Altered | None:
    """Parse ``CHANGE old new …`` or ``RENAME COLUMN old TO new``."""
    if len(tokens) <= distance or not (tokens[0].name and tokens[distance].name):
        return None
    old, new = tokens[0].name, tokens[distance].name
    return Altered() if old.lower() == new.lower() else Altered(renamed=((old, new),))
