"""Run tests against a changed copy of the sources, to prove that they fail without the code that they cover.

A comment ``# proven: NAME`` marks the line of a change, behind it or above it. The tables of mutations and of rules
refer to the marker and say what to do with the line in terms of its syntax (``without(-1)`` takes away the last operand
of its condition). So code can be moved, and its variables renamed, without a change of the tables.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ("service", "connectors", "dev/headrace_dev/memory")
"""The folders that are copied. All others are linked."""
LINKED = ("tests", "pyproject.toml")
PASSED, FAILED, NOTHING = 0, 1, 5
"""pytest's exit statuses."""

_MARKER = re.compile(r"# proven: ([\w-]+(?:, [\w-]+)*)$", re.MULTILINE)

Change = Callable[[Sequence[ast.AST]], tuple[ast.AST, str]]
"""Receives the statement of a marked line, and what begins in this line of it, the outermost part first.

Returns the part to replace, and its replacement. Raises LookupError if there is no such part.
"""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of the line that has the marker ``marker``."""

    marker: str
    change: Change


def dropped(parts: Sequence[ast.AST]) -> tuple[ast.AST, str]:
    """The statement does nothing."""
    return parts[0], "pass"


def value(text: str) -> Change:
    """What the statement assigns or returns, its condition, or what it iterates over or enters, is ``text``."""

    def change(parts: Sequence[ast.AST]) -> tuple[ast.AST, str]:
        statement = parts[0]
        if isinstance(statement, ast.With | ast.AsyncWith):
            return statement.items[0].context_expr, text
        for name in ("test", "iter", "value"):
            if isinstance(part := getattr(statement, name, None), ast.expr):
                return part, text
        raise LookupError(f"{ast.unparse(statement)!r} has no value")

    return change


never, always = value("False"), value("True")


def also(condition: str) -> Change:
    """The condition of the statement has another part."""

    def change(parts: Sequence[ast.AST]) -> tuple[ast.AST, str]:
        part, _ = always(parts)
        return part, f"({ast.unparse(part)}) and ({condition})"

    return change


def without(operand: int) -> Change:
    """The first ``and``, ``or``, ``&`` or ``|`` of the line has one operand less."""

    def change(parts: Sequence[ast.AST]) -> tuple[ast.AST, str]:
        for part in parts:
            if isinstance(part, ast.BoolOp):
                operands = [*part.values]
                del operands[operand]
                rest = operands[0] if len(operands) == 1 else ast.BoolOp(part.op, operands)
                return part, f"({ast.unparse(rest)})"
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitAnd | ast.BitOr):
                return part, f"({ast.unparse(part.right if operand == 0 else part.left)})"
        raise LookupError("there is no condition of several parts")

    return change


def boundary(parts: Sequence[ast.AST]) -> tuple[ast.AST, str]:
    """The first comparison of the line is also true for equal values."""
    return _compared(parts, {ast.Gt: ast.GtE(), ast.Lt: ast.LtE()})


def reversed_order(parts: Sequence[ast.AST]) -> tuple[ast.AST, str]:
    """The first comparison of the line is the other way round."""
    return _compared(parts, {ast.Gt: ast.Lt(), ast.Lt: ast.Gt()})


def _compared(parts: Sequence[ast.AST], operators: dict[type[ast.cmpop], ast.cmpop]) -> tuple[ast.AST, str]:
    for part in parts:
        if isinstance(part, ast.Compare) and type(part.ops[0]) in operators:
            changed = ast.Compare(part.left, [operators[type(part.ops[0])], *part.ops[1:]], part.comparators)
            return part, f"({ast.unparse(changed)})"
    raise LookupError("there is no such comparison")


def otherwise(parts: Sequence[ast.AST]) -> tuple[ast.AST, str]:
    """The first ``A if B else C`` of the line is always C."""
    for part in parts:
        if isinstance(part, ast.IfExp):
            return part, f"({ast.unparse(part.orelse)})"
    raise LookupError("there is no conditional expression")


def unfiltered(parts: Sequence[ast.AST]) -> tuple[ast.AST, str]:
    """The first comprehension of the line takes every item."""
    for part in parts:
        if isinstance(part, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            every = [ast.comprehension(loop.target, loop.iter, [], loop.is_async) for loop in part.generators]
            return part, ast.unparse(type(part)(part.elt, every))
    raise LookupError("there is no comprehension")


def becoming(old: str, new: str) -> Change:
    """``old``, which the line contains once, is ``new``: for what the others cannot express."""

    def change(parts: Sequence[ast.AST]) -> tuple[ast.AST, str]:
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.count(old) == 1:
                return part, repr(part.value.replace(old, new))
            if isinstance(part, ast.expr | ast.keyword) and (text := ast.unparse(part)).count(old) == 1:
                return part, text.replace(old, new)
        raise LookupError(f"there is no {old!r}")

    return change


@contextmanager
def copied() -> Iterator[Path]:
    """Yield a scratch tree with copies of the sources, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="headrace-sources-") as name:
        root = Path(name)
        root.chmod(0o711)
        for folder in SOURCES:
            shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        tools = [path for path in (ROOT / "dev" / "headrace_dev").iterdir() if path.name != "memory"]
        for other in (*(ROOT / name for name in LINKED), *tools):
            (root / other.relative_to(ROOT)).symlink_to(other)
        yield root


@cache
def markers() -> dict[str, Path]:
    """Return the files of all markers, relative to the root. Raises LookupError if a marker occurs twice."""
    files: dict[str, Path] = {}
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            for names in _MARKER.findall(path.read_text()):
                for name in names.split(", "):
                    if name in files:
                        raise LookupError(f"# proven: {name} occurs in {files[name]} and in {path}")
                    files[name] = path.relative_to(ROOT)
    return files


def apply(root: Path, edit: Edit) -> None:
    """Change the tree below ``root``. Raises LookupError if the marker does not exist, or its line does not fit."""
    if edit.marker not in markers():
        raise LookupError(f"no line of the sources has the marker # proven: {edit.marker}")
    path = root / markers()[edit.marker]
    path.write_text(changed(path.read_text(), edit))


def changed(source: str, edit: Edit) -> str:
    """Return a module's source after a change. Raises LookupError if the marked line does not fit."""
    lines = source.splitlines(keepends=True)
    number = next(
        number
        for number, line in enumerate(lines, 1)
        if (match := _MARKER.search(line)) and edit.marker in match[1].split(", ")
    )
    while lines[number - 1].lstrip().startswith("#"):  # a marker above its line
        number += 1
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and node.lineno <= number]
    statement = max((node for node in statements if (node.end_lineno or 0) >= number), key=lambda node: node.lineno)
    parts = [node for node in ast.walk(statement) if getattr(node, "lineno", 0) == number and node is not statement]
    part, text = edit.change([statement, *parts])
    # Columns of ast count the bytes of UTF-8.
    before = "".join(lines[: part.lineno - 1]).encode() + lines[part.lineno - 1].encode()[: part.col_offset]
    after = lines[part.end_lineno - 1].encode()[part.end_col_offset :] + "".join(lines[part.end_lineno :]).encode()
    return (before + text.encode() + after).decode()


def run_pytest(root: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest with the sources below ``root``. Returns its exit status and its last line."""
    paths = os.pathsep.join(str(root / part) for part in ("service", "connectors", "dev", "tests"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header"]
    done = subprocess.run(
        [*command, "--rootdir", str(root), *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    last = re.sub(r"=+|in [\d.]+s.*", "", lines[-1] if lines else "").strip()
    return (NOTHING if "no tests ran" in last else done.returncode), last
