"""Oracle's SQL as far as reselect uses it: parsed by sqlglot's Oracle dialect, evaluated over rows in memory.

Names without quotes are upper case, nulls are equal to nothing, and CHAR compares blank-padded. The evaluation refuses
all unknown parts of a statement. Times are texts, ``2024-02-29 13:14:15`` with nine more digits, and an offset if the
type has one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar

import oracledb
from sqlglot import exp, parse_one
from sqlglot.dialects.oracle import Oracle

Row = Mapping[str, Any]
Bindings = Mapping[str, Row]
"""The row of each alias."""
Relation = Callable[[exp.Table], Sequence[Row]]
"""The rows of a table that a statement names."""


class _Parser(Oracle.Parser):
    """sqlglot's parser with the missing function ``JSON_SERIALIZE(x RETURNING CLOB)``."""

    FUNCTION_PARSERS: ClassVar[Mapping[str, Any]] = {
        **Oracle.Parser.FUNCTION_PARSERS,
        "JSON_SERIALIZE": lambda self: self._parse_json_serialize(),
    }

    def _parse_json_serialize(self) -> exp.Expression:
        value = self._parse_column()
        if not self._match_text_seq("RETURNING", "CLOB"):
            self.raise_error("JSON_SERIALIZE without RETURNING CLOB cuts at 4000 bytes")
        return self.expression(exp.Anonymous(this="JSON_SERIALIZE", expressions=[value]))


class OracleWithJson(Oracle):
    """The dialect of the parser."""

    Parser = _Parser


class Char(str):
    """A text of type CHAR or NCHAR."""


class Refused(Exception):
    """An identifier that does not exist; ``code`` is the ORA code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def parse(text: str) -> exp.Expression:
    """The statement's tree. Raises sqlglot's ParseError if the text is not Oracle's SQL."""
    return parse_one(text, read=OracleWithJson)


def bind_names(tree: exp.Expression) -> set[str]:
    """The names of a statement's binds."""
    return {str(node.this) for node in tree.find_all(exp.Placeholder)}


def select(tree: exp.Expression, binds: Mapping[str, Any], relation: Relation) -> list[tuple[Any, ...]]:
    """The rows of a SELECT."""
    return [tuple(row.values()) for row in _Select(binds, relation).rows(tree)]


class _Select:
    def __init__(self, binds: Mapping[str, Any], relation: Relation) -> None:
        self._binds = binds
        self._relation = relation

    def rows(self, tree: exp.Expression, names: Sequence[str] | None = None) -> list[Row]:
        """A SELECT or UNION ALL; the names of a union are those of its first part."""
        if isinstance(tree, exp.Union):
            assert not tree.args["distinct"]
            first = self.rows(tree.left, names)
            return first + self.rows(tree.right, list(first[0]) if names is None and first else names)
        assert isinstance(tree, exp.Select), type(tree)
        found = [row for row in self._joined(tree) if self._holds(tree.args.get("where"), row)]
        for key in reversed(tree.args["order"].expressions if tree.args.get("order") else []):
            found.sort(key=lambda row, key=key: sort_key(self.value(key.this, row)))
        if (limit := tree.args.get("limit")) is not None:
            assert isinstance(limit, exp.Fetch), type(limit)
            found = found[: int(limit.args["count"].name)]
        return [self._projected(tree, row, names) for row in found]

    def _joined(self, tree: exp.Select) -> Iterator[Bindings]:
        partial: list[Bindings] = list(self._source(tree.args["from_"].this))
        for join in tree.args.get("joins") or []:
            assert not join.side
            others = list(self._source(join.this))
            partial = [
                {**left, **right}
                for left in partial
                for right in others
                if self._true(join.args["on"], {**left, **right})
            ]
        yield from partial

    def _source(self, node: exp.Expression) -> Iterator[Bindings]:
        rows = self.rows(node.this) if isinstance(node, exp.Subquery) else self._relation(node)
        alias = node.alias.upper() or node.name.upper()
        yield from ({alias: row} for row in rows)

    def _holds(self, where: exp.Expression | None, row: Bindings) -> bool:
        return where is None or self._true(where.this, row)

    def _projected(self, tree: exp.Select, row: Bindings, names: Sequence[str] | None) -> Row:
        labels = names or [each.alias.upper() or f"#{number}" for number, each in enumerate(tree.expressions)]
        values = [self.value(each.unalias(), row) for each in tree.expressions]
        return dict(zip(labels, values, strict=True))

    # -- conditions ---------------------------------------------------------------------------------------------------

    def _true(self, node: exp.Expression, row: Bindings) -> bool:
        if isinstance(node, exp.And):
            return self._true(node.left, row) and self._true(node.right, row)
        if isinstance(node, exp.Or):
            return self._true(node.left, row) or self._true(node.right, row)
        if isinstance(node, exp.Paren):
            return self._true(node.this, row)
        assert isinstance(node, exp.EQ | exp.NEQ | exp.GT | exp.GTE), type(node)
        left, right = self.value(node.left, row), self.value(node.right, row)
        if left is None or right is None:
            return False
        if isinstance(node, exp.GT | exp.GTE) and not equal(left, right):
            return bool(sort_key(left) > sort_key(right))
        return equal(left, right) is not isinstance(node, exp.NEQ | exp.GT)

    # -- values -------------------------------------------------------------------------------------------------------

    def value(self, node: exp.Expression, row: Bindings) -> Any:
        evaluate = _VALUES.get(type(node))
        assert evaluate is not None, f"{type(node).__name__} is not known: {node.sql('oracle')}"
        return evaluate(self, node, row)

    def _literal(self, node: exp.Literal, row: Bindings) -> Any:
        return node.this if node.is_string else Decimal(node.this)

    def _bind(self, node: exp.Placeholder, row: Bindings) -> Any:
        return self._binds[str(node.this)]

    def _column(self, node: exp.Column, row: Bindings) -> Any:
        name = node.name if node.this.quoted else node.name.upper()
        sources = [row[node.table.upper()]] if node.table else [each for each in row.values() if name in each]
        if len(sources) != 1 or name not in sources[0]:
            raise Refused(904, f'"{name}": invalid identifier')
        return sources[0][name]

    def _case(self, node: exp.Case, row: Bindings) -> Any:
        for branch in node.args["ifs"]:
            if self._true(branch.this, row):
                return self.value(branch.args["true"], row)
        return None

    def _cast(self, node: exp.Cast, row: Bindings) -> Any:
        return cast(self.value(node.this, row), node.to)

    def _to_char(self, node: exp.ToChar, row: Bindings) -> Any:
        value = self.value(node.this, row)
        return None if value is None else to_char(value, node.args["format"].this)

    def _to_time(self, node: exp.Expression, row: Bindings) -> Any:
        return self.value(node.this, row)

    def _method(self, node: exp.Dot, row: Bindings) -> Any:
        assert node.expression.name == "getClobVal"
        alias, column = node.this.this.name.upper(), node.this.expression
        assert column.quoted
        return row[alias][column.name]

    def _now(self, node: exp.Systimestamp, row: Bindings) -> Any:
        return row["DUAL"]["SYSTIMESTAMP"]

    def _function(self, node: exp.Anonymous, row: Bindings) -> Any:
        arguments = [self.value(each, row) for each in node.expressions]
        return _FUNCTIONS[node.name.upper()](*arguments)


_VALUES: Mapping[type[exp.Expression], Callable[[_Select, Any, Bindings], Any]] = {
    exp.Literal: _Select._literal,
    exp.Placeholder: _Select._bind,
    exp.Column: _Select._column,
    exp.Case: _Select._case,
    exp.Cast: _Select._cast,
    exp.ToChar: _Select._to_char,
    exp.StrToDate: _Select._to_time,
    exp.StrToTime: _Select._to_time,
    exp.Dot: _Select._method,
    exp.Anonymous: _Select._function,
    exp.Systimestamp: _Select._now,
}


def equal(left: Any, right: Any) -> bool:
    """Oracle's ``=`` of two values that are not null."""
    if isinstance(left, Char) and isinstance(right, Char):
        return left.rstrip(" ") == right.rstrip(" ")
    if isinstance(left, str) and isinstance(right, str) and _TIME.fullmatch(left) and _TIME.fullmatch(right):
        return instant(left) == instant(right)
    if isinstance(left, oracledb.IntervalYM) and isinstance(right, oracledb.IntervalYM):
        return months(left) == months(right)
    assert isinstance(left, str) == isinstance(right, str), "ORA-00932: inconsistent datatypes"
    return bool(left == right)


def sort_key(value: Any) -> Any:
    """The value by which ``value`` is ordered: texts by their bytes, without the blanks of a CHAR."""
    if isinstance(value, Char):
        return value.rstrip(" ").encode()
    if isinstance(value, str):
        return instant(value) if _TIME.fullmatch(value) else value.encode()
    return value


def cast(value: Any, to: exp.DataType) -> Any:
    """CAST, which pads a CHAR and refuses values of another type."""
    if value is None:
        return None
    data_type = to.this
    if data_type in (exp.DataType.Type.CHAR, exp.DataType.Type.NCHAR):
        return Char(str(value).ljust(int(to.expressions[0].name)))
    if data_type in (exp.DataType.Type.VARCHAR, exp.DataType.Type.NVARCHAR):
        return str(value)[: int(to.expressions[0].name)]
    if data_type is exp.DataType.Type.DECIMAL:
        return Decimal(value)
    if data_type in (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT):
        return float(value)
    assert str(to.args.get("kind")) == "RAW", to
    return bytes(value)


_TIME = re.compile(r" ?(-?\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{9}))?(?: ([+-])(\d\d):(\d\d))?")


def instant(text: str) -> tuple[Any, ...]:
    """The value by which times are compared; those of one test have the same offset, or fall on one day."""
    match = _TIME.fullmatch(text)
    assert match is not None
    minutes = int(match[4]) * 60 + int(match[5])
    if match[8]:
        minutes -= int(f"{match[8]}1") * (int(match[9]) * 60 + int(match[10]))
    return int(match[1]), int(match[2]), int(match[3]), minutes, int(match[6]), match[7] or "0" * 9


def to_char(text: str, format_text: str) -> str:
    """TO_CHAR of a time with the format elements that reselect uses."""
    match = _TIME.fullmatch(text)
    assert match is not None, text
    year = f"{'' if match[1].startswith('-') else ' '}{match[1]}"
    parts = {"SYYYY": year, "MM": match[2], "DD": match[3], "HH24": match[4], "MI": match[5], "SS": match[6]}
    parts |= {"FF9": match[7] or "0" * 9, "TZH": f"{match[8]}{match[9]}", "TZM": match[10] or ""}
    return re.sub(r"SYYYY|MM|DD|HH24|MI|SS|FF9|TZH|TZM", lambda found: parts[found[0]], format_text)


def months(value: oracledb.IntervalYM) -> int:
    """Months of an interval."""
    return int(value.years * 12 + value.months)


def _bitand(left: Any, right: Any) -> Decimal:
    return Decimal(int(left) & int(right))


def _months_interval(number: Any, unit: str) -> Any:
    assert unit == "MONTH"
    if number is None:
        return None
    sign = -1 if number < 0 else 1
    return oracledb.IntervalYM(sign * (abs(int(number)) // 12), sign * (abs(int(number)) % 12))


def _seconds_interval(number: Any, unit: str) -> timedelta | None:
    assert unit == "SECOND"
    return None if number is None else timedelta(microseconds=int(number * 1_000_000))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "BITAND": _bitand,
    "NUMTOYMINTERVAL": _months_interval,
    "NUMTODSINTERVAL": _seconds_interval,
    "SYS_EXTRACT_UTC": lambda text: text,
    "TO_TIMESTAMP_TZ": lambda text, form: text,
    "JSON_SERIALIZE": lambda value: None if value is None else json.dumps(value, separators=(",", ":")),
}
