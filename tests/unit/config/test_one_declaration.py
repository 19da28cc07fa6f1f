"""An option is declared once: no other code repeats its default, and code reads typed fields instead of texts."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

import headrace
import headrace_connectors
from headrace.config.connector import CONNECTOR_OPTIONS
from headrace.config.converter import CONVERTERS
from headrace.config.reselect import reselect_options
from headrace.config.worker_options import WORKER_OPTIONS
from headrace.core.connect.config_def import parse, text

SERVICE, CONNECTORS = Path(headrace.__file__).parent, Path(headrace_connectors.__file__).parent
OPTIONS = [
    *WORKER_OPTIONS.keys,
    *CONNECTOR_OPTIONS.keys,
    *dict.fromkeys(key for options in CONVERTERS.values() for key in options.keys),
]
DECLARES = ("option", "_option", "_switch", "_mode", "_strategy")
"""The functions that declare an option as a field."""


Modules = Mapping[str, Sequence[ast.AST]]
"""The classes, calls and attributes of each module, by its name."""


@cache
def modules() -> Modules:
    """Return the parsed modules of the service and the connectors."""
    return {
        f"{root.name}/{path.relative_to(root)}": nodes(path.read_text())
        for root in (SERVICE, CONNECTORS)
        for path in sorted(root.rglob("*.py"))
    }


def nodes(source: str) -> Sequence[ast.AST]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.ClassDef, ast.Call, ast.Attribute))]


def outside_of_config() -> Modules:
    return {name: each for name, each in modules().items() if not name.startswith("headrace/config/")}


def is_written(node: ast.expr | None) -> bool:
    """Return whether a default is a literal. False, None and an empty text are no choice."""
    if isinstance(node, ast.BinOp):
        return is_written(node.left) and is_written(node.right)
    if isinstance(node, ast.Tuple):
        return any(map(is_written, node.elts))
    return isinstance(node, ast.Constant) and node.value not in (None, False, "")


def declared_defaults(modules: Iterable[Sequence[ast.AST]]) -> dict[str, ast.expr]:
    """Return the default of every field that declares an option with ``option``, by the name of the field."""
    found = {}
    for field in fields(modules):
        value = field[1].value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "option":
            found[field[1].target.id] = value.args[2]  # type: ignore[union-attr] # a name
    return found


def fields(modules: Iterable[Sequence[ast.AST]]) -> Iterator[tuple[str, ast.AnnAssign]]:
    """Yield every field of every class, with the name of the class."""
    for node in (node for module in modules for node in module):
        if isinstance(node, ast.ClassDef):
            yield from ((node.name, each) for each in node.body if isinstance(each, ast.AnnAssign))


def written_twice(modules: Modules) -> list[str]:
    """Return the fields that get their value from an option's field, and have a literal default as the option has."""
    options = declared_defaults(modules.values())
    own = {
        (name, field.target.id): field.value
        for name, field in fields(modules.values())
        if isinstance(field.target, ast.Name)
    }
    return [
        f"{module}: {call.func.id}.{given.arg}"
        for module, tree in modules.items()
        for call in tree
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        for given in call.keywords
        for part in ast.walk(given.value)
        if isinstance(part, ast.Attribute)
        and is_written(options.get(part.attr))
        and is_written(own.get((call.func.id, given.arg or "")))
    ]


def read_with_a_default(modules: Modules) -> list[str]:
    """Return the places that read an option by its name, with a literal default."""
    names = {key.name for key in OPTIONS}
    return [
        f"{module}:{call.lineno}: {call.args[0].value}"
        for module, tree in modules.items()
        for call in tree
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "get"
        if len(call.args) == 2 and isinstance(call.args[0], ast.Constant) and call.args[0].value in names
        if is_written(call.args[1])
    ]


def test_no_default_is_written_twice() -> None:
    """Let the other class refer to the default of the group: ``TableSettings().evolve``."""
    assert written_twice(modules()) == []


def test_no_option_is_read_with_a_default_of_its_own() -> None:
    """Declare it as a field of a group, and parse the group."""
    assert read_with_a_default(outside_of_config()) == []


def test_raw_properties_stay_inside_the_configuration() -> None:
    """Give the configuration a typed field, or a Mapping field for keys that are free."""
    found = [
        f"{module}:{node.lineno}"
        for module, tree in outside_of_config().items()
        for node in tree
        if isinstance(node, ast.Attribute) and node.attr in ("originals", "_given") and "config" in ast.dump(node.value)
    ]
    assert found == []


def test_the_checks_find_second_defaults() -> None:
    """A second default in a class that is built from a group, and one beside the name of an option."""
    source = """
class Group:
    size: int = option("batch.max.records", Type.INT, 7, "Size.")
    adopt: bool = option("table.adopt", Type.BOOLEAN, False, "Adopt.")

class Policy:
    size: int = 7
    adopt: bool = False

class Referring:
    size: int = Group().size

made = Policy(size=group.size, adopt=group.adopt), Referring(size=group.size)
read = properties.get("batch.max.records", "7"), properties.get("batch.max.records"), properties.get("other", "7")
"""
    example = {"example": nodes(source)}
    assert written_twice(example) == ["example: Policy.size"]
    assert read_with_a_default(example) == ["example:14: batch.max.records"]


@pytest.mark.parametrize("key", OPTIONS, ids=lambda key: key.name)
def test_a_default_is_a_valid_value(key: object) -> None:
    """Each default passes the parser and the validator of its option, and its text is the one that is shown."""
    option = next(each for each in OPTIONS if each is key)
    value = parse(option, option.default_text)
    if value is not None and option.validator is not None:
        option.validator(option.name, value)
    assert text(option, value) == option.default_text


def test_the_groups_have_the_defaults_of_the_options() -> None:
    """A group that is parsed without properties equals the group with each default given as text."""
    given = {key.name: key.default_text for key in CONNECTOR_OPTIONS.keys if key.default_text}
    assert reselect_options(given) == reselect_options({})
