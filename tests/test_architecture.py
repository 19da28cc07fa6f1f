"""The rules of the architecture that no type checker sees. Each failure says how to repair it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import headrace
import headrace_connectors
from headrace.core.model import errors
from headrace_dev.packages import PICTURE, packages_svg

SERVICE = Path(headrace.__file__).parent
CONNECTORS = Path(headrace_connectors.__file__).parent


def modules(*roots: Path) -> Iterator[Path]:
    for root in roots:
        yield from sorted(root.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Top-level names of what a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def importers(package: str) -> set[str]:
    return {str(path.relative_to(CONNECTORS)) for path in modules(CONNECTORS) if package in imported(path)}


def test_only_one_file_imports_faust() -> None:
    """Move what needs Faust behind kafka/agent.py."""
    assert importers("faust") == {"kafka/agent.py"}


def test_only_one_file_sends_requests_to_other_workers() -> None:
    """Move what needs an HTTP client behind rest/forward.py."""
    assert [path.name for path in modules(SERVICE, CONNECTORS) if "aiohttp" in imported(path)] == ["forward.py"]


def test_drivers_stay_in_their_packages() -> None:
    """Only the lakehouse package knows Spark, only the sql package knows a database driver."""
    assert all(name.startswith("lakehouse/") for name in importers("pyspark"))
    assert all(name.startswith("sql/postgres") for name in importers("psycopg") | importers("psycopg_pool"))
    assert all(name.startswith("sql/oracle") for name in importers("oracledb"))
    assert importers("rocksdict") == {"rocksdb/row_store.py"}
    service = {package for path in modules(SERVICE) for package in imported(path)}
    assert not service & {"faust", "aiokafka", "pyspark", "psycopg", "oracledb", "rocksdict", "headrace_connectors"}


def test_every_plug_in_is_where_its_entry_point_says() -> None:
    """Correct pyproject.toml; the service loads what stands there by name, and nothing else tells it."""
    groups = tomllib.loads((SERVICE.parents[1] / "pyproject.toml").read_text())["project"]["entry-points"]
    for name, place in [entry for group in groups.values() for entry in group.items()]:
        module, _, attribute = place.partition(":")
        assert callable(getattr(import_module(module), attribute)), name


def test_every_error_has_a_remedy() -> None:
    """Add the class to core/model/errors.py: POLICY, with what an operator should do."""
    kinds = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HeadraceError)
    }
    without = {kind for kind in kinds if not any(base in errors.POLICY for base in kind.__mro__)}
    assert without <= {errors.HeadraceError}


def test_no_bucket_modules() -> None:
    """Name a module after what it holds."""
    banned = {"utils", "common", "types", "helpers", "misc", "manager"}
    assert not [path for path in modules(SERVICE, CONNECTORS) if path.stem in banned]


def test_every_module_says_what_it_is_for() -> None:
    """A docstring at its head."""
    assert not [path for path in modules(SERVICE, CONNECTORS) if not ast.get_docstring(ast.parse(path.read_text()))]


def test_the_core_has_no_mocks() -> None:
    """Plain values are enough to test it; a mock would hide that a core module does I/O."""
    tests = Path(__file__).parent / "unit" / "core"
    assert not [path for path in tests.glob("*.py") if "mock" in imported(path) or "unittest" in imported(path)]


def test_the_picture_of_the_packages_is_up_to_date() -> None:
    """Run ``.venv/bin/python -m headrace_dev.packages``, and look at docs/packages.svg."""
    assert PICTURE.read_text(encoding="utf-8") == packages_svg()
    shown = {path.stem for path in SERVICE.glob("*.py")} | {path.parent.name for path in SERVICE.glob("*/__init__.py")}
    missing = [name for name in shown - {"__init__"} if f">{name}</text>" not in packages_svg()]
    assert not missing, "add the package to the contract 'service layers' in pyproject.toml"
