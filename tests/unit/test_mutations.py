"""Tests that the tables of mutations and of rules match the sources, and what the changes do."""

from __future__ import annotations

import ast

import pytest
from mutations.table import MUTATIONS
from reselect_cases.rules import RULES_OF_CASES
from support.repository.changed_sources import (
    ROOT,
    Change,
    Edit,
    also,
    always,
    becoming,
    boundary,
    changed,
    dropped,
    markers,
    never,
    otherwise,
    reversed_order,
    unfiltered,
    value,
    without,
)

EDITS = [edit for entry in (*MUTATIONS, *RULES_OF_CASES) for edit in entry.edits]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.marker)
def test_every_change_fits_its_line(edit: Edit) -> None:
    """Each marker is in the sources, and the change makes other code: else move the marker, or correct the table."""
    assert edit.marker in markers(), f"no line has the comment # proven: {edit.marker}"
    source = (ROOT / markers()[edit.marker]).read_text()
    assert ast.dump(ast.parse(changed(source, edit))) != ast.dump(ast.parse(source))


def test_every_marker_is_used() -> None:
    """A marker without a change proves nothing: remove it."""
    assert markers().keys() == {edit.marker for edit in EDITS}


def test_names_are_unique() -> None:
    """Mutations have unique names, because the command selects them by name."""
    names = [mutation.name for mutation in MUTATIONS]
    assert len(names) == len(set(names)) >= 30


@pytest.mark.parametrize(
    ("line", "change", "expected"),
    [
        ("f(1)", dropped, "pass"),
        ("x = f(1)", value("2"), "x = 2"),
        ("return f(1)", never, "return False"),
        ("x = a or b and c", without(0), "x = b and c"),
        ("x = a or b and c", without(-1), "x = a"),
        ("x = a & b | c", without(-1), "x = a & b"),
        ("x = a & b", without(0), "x = b"),
        ("x = a > b", boundary, "x = a >= b"),
        ("x = a < b", reversed_order, "x = a > b"),
        ("x = a == b", also("c"), "x = a == b and c"),
        ("x = a if b else c", otherwise, "x = c"),
        ("x = [a for a in b if a]", unfiltered, "x = [a for a in b]"),
        ("x = 'ä', f(a)", becoming("f(a)", "a"), "x = ('ä', a)"),
        ("x = 'SELECT 1'", becoming("1", "'a'"), "x = \"SELECT 'a'\""),
        ("x = f(\n    a,\n    b=c,  # proven: it\n)", becoming("c", "d"), "x = f(a, b=d)"),
    ],
)
def test_a_change_of_a_statement(line: str, change: Change, expected: str) -> None:
    """The rest of the module stays as it is, whether the marker is behind the line or above it."""
    marked = [line] if "# proven" in line else [f"{line}  # proven: other, it", f"# proven: it\n# More.\n{line}"]
    for text in marked:
        source = f"first = 'é'\n{text}\nlast = 1\n"
        assert _code(changed(source, Edit("it", change))) == _code(f"first = 'é'\n{expected}\nlast = 1\n")


@pytest.mark.parametrize(
    ("head", "change", "expected"),
    [
        ("if a:", always, "if True:"),
        ("while a and b:", without(-1), "while a:"),
        ("for a in b:", value("()"), "for a in ():"),
        ("with a:", value("b"), "with b:"),
    ],
)
def test_a_change_of_the_head_of_a_block(head: str, change: Change, expected: str) -> None:
    source = f"{head}  # proven: it\n    f(a and b > c)\n"
    assert _code(changed(source, Edit("it", change))) == _code(f"{expected}\n    f(a and b > c)\n")


@pytest.mark.parametrize(
    "change", [never, without(0), boundary, reversed_order, otherwise, unfiltered, becoming("b", "c")]
)
def test_a_line_without_such_a_part_is_an_error(change: Change) -> None:
    """The mutation would not change what it names."""
    with pytest.raises(LookupError):
        changed("import a  # proven: it\n", Edit("it", change))


def _code(source: str) -> str:
    return ast.unparse(ast.parse(source))
