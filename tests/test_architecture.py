"""The rules of the architecture that no type checker enforces. Each failure names the fix."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import _get_protocol_attrs  # type: ignore[attr-defined] # typing.get_protocol_members begins with 3.13

import headrace
import headrace_app
import headrace_connectors
from headrace import ports
from headrace.core.model import errors
from headrace_dev import memory
from headrace_dev.packages import PICTURE, packages_svg

SERVICE = Path(headrace.__file__).parent
CONNECTORS = Path(headrace_connectors.__file__).parent
APPLICATION = Path(headrace_app.__file__).parent


def modules(*roots: Path) -> Iterator[Path]:
    for root in roots:
        yield from sorted(root.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Return the modules that a module imports, and the packages that contain them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            found.update(accumulate(name.split("."), "{}.{}".format))
    return found


def classes(package: ModuleType) -> Iterator[type]:
    """Yield all classes of a package from the modules that declare them."""
    for found in walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            declared = vars(import_module(found.name)).values()
            yield from (each for each in declared if isinstance(each, type) and each.__module__ == found.name)


def is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def importers(package: str) -> set[str]:
    return {str(path.relative_to(CONNECTORS)) for path in modules(CONNECTORS) if package in imported(path)}


def test_only_one_file_imports_faust() -> None:
    """Move what needs Faust behind kafka/agent.py."""
    assert importers("faust") == {"kafka/agent.py"}


CLIENTS = {"aiohttp", "http.client", "httpx", "requests", "urllib.request", "urllib3"}
"""Modules that send HTTP requests."""


def test_only_one_file_sends_http_requests() -> None:
    """Use headrace.runtime.http_client: requests have a deadline and a limit, and credentials stay at one server."""
    found = [path.name for path in modules(SERVICE, CONNECTORS) if CLIENTS & imported(path)]
    assert found == ["http_client.py"]


def test_drivers_stay_in_their_packages() -> None:
    """Only the lakehouse package imports Spark, and only the sql package imports a database driver."""
    packages = {
        "pyspark": "lakehouse/",
        "psycopg": "sql/postgres",
        "psycopg_pool": "sql/postgres",
        "oracledb": "sql/oracle",
    }
    for driver, prefix in packages.items():
        found = importers(driver)
        assert found, f"no module imports {driver}: correct its name here"
        assert not [name for name in found if not name.startswith(prefix)], driver
    assert importers("rocksdict") == {"rocksdb/row_store.py"}
    service = {package for path in modules(SERVICE) for package in imported(path)}
    assert not service & {"faust", "aiokafka", "pyspark", "psycopg", "oracledb", "rocksdict", "headrace_connectors"}


def test_own_parts_are_imported() -> None:
    """Construct the part in headrace_app/composition.py: entry points are for what other packages add."""
    project = tomllib.loads((SERVICE.parents[1] / "pyproject.toml").read_text())["project"]
    assert "entry-points" not in project
    for place in project["scripts"].values():
        module, _, attribute = place.partition(":")
        assert callable(getattr(import_module(module), attribute)), place
    loaders = [path.name for path in modules(SERVICE, APPLICATION, CONNECTORS) if "entry_points(" in path.read_text()]
    assert loaders == ["extensions.py"]


CALLED_BELOW = {"Decoder", "KafkaRecord", "RowStore"}
"""Protocols that core or a pack calls, which import nothing above them; ``headrace.ports`` re-exports these."""


def test_what_connector_packages_implement_is_a_port() -> None:
    """Declare the protocol in headrace/ports. A connector class implements it if it has all of its methods."""
    implementers = [kind for kind in classes(headrace_connectors) if not is_protocol(kind)]
    found = {
        kind.__name__: implementer.__name__
        for kind in classes(headrace)
        if is_protocol(kind) and not kind.__module__.startswith("headrace.ports.")
        for implementer in implementers
        if (methods := set(_get_protocol_attrs(kind))) != {"__call__"} and methods <= set(dir(implementer))
    }
    assert found.keys() <= CALLED_BELOW, found


def test_every_port_has_a_memory_version_and_a_real_one() -> None:
    """Write the memory version in headrace_dev/memory, which unit tests use, and a suite that both pass."""
    implemented_by_the_service = {"FeedListener", "Agent", "Messages", "OpenAgent"}  # asyncio_agent.py
    for port in classes(ports):
        if not is_protocol(port) or port.__name__ in implemented_by_the_service:
            continue
        methods = {name for name in _get_protocol_attrs(port) if hasattr(port, name)}
        if methods == {"__call__"}:  # a function that opens the implementation of a port
            continue
        for package in (headrace_connectors, memory):
            implementers = [kind for kind in classes(package) if not is_protocol(kind)]
            assert any(methods <= set(dir(kind)) for kind in implementers), (package.__name__, port.__name__)


PURE = [SERVICE / name for name in ("core", "converters", "transforms", "cassandra")]


def test_pure_packages_read_no_clock_and_no_url() -> None:
    """Take the time as an argument, and content as a value."""
    clocks = {"now", "utcnow", "today", "time_ns", "monotonic", "perf_counter"}
    for path in modules(*PURE):
        assert not CLIENTS & imported(path), path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert not (node.value.id in {"datetime", "date", "time"} and node.attr in clocks), path


_STATEMENT = re.compile(
    r"(SELECT|MERGE INTO|INSERT INTO|UPDATE|DELETE FROM|ALTER|CREATE|DROP|CALL|TRUNCATE|WITH|SHOW|DESCRIBE)\s"
)


def texts(path: Path) -> Iterator[ast.JoinedStr | ast.Constant]:
    """Yield the text literals of a module, without docstrings."""
    tree = ast.parse(path.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in documentation:
            yield node


def test_only_the_package_of_a_system_builds_its_sql() -> None:
    """Move the statement to lakehouse/ (Spark) or to sql/ (source databases).

    Those in table_queries.py are shown to people, who run them in engines of their own.
    """
    for path in modules(SERVICE, CONNECTORS):
        if path.parent.name in {"lakehouse", "sql"} or path.name == "table_queries.py":
            continue
        found = [node.value for node in texts(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        assert not [text for text in found if _STATEMENT.match(text)], path


def test_sql_quotes_names_and_texts_by_function() -> None:
    """Use quoted() for a name and text_literal() for a text; between written quotes only constants are allowed."""
    for path in modules(CONNECTORS / "lakehouse", CONNECTORS / "sql"):
        for node in texts(path):
            if not isinstance(node, ast.JoinedStr):
                continue
            for before, value in pairwise(node.values):
                if isinstance(before, ast.Constant) and str(before.value)[-1:] in ("'", "`"):
                    assert isinstance(value, ast.FormattedValue)
                    name = value.value.value if isinstance(value.value, ast.Subscript) else value.value
                    assert isinstance(name, ast.Name), ast.unparse(node)
                    assert name.id.isupper(), ast.unparse(node)


def test_every_error_has_a_remedy() -> None:
    """Add the class to core/model/errors.py: POLICY, with what an operator should do."""
    kinds = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HeadraceError)
    }
    without = {kind for kind in kinds if not any(base in errors.POLICY for base in kind.__mro__)}
    assert without <= {errors.HeadraceError}


def test_no_bucket_modules() -> None:
    """Name a module after its content."""
    banned = {"utils", "common", "types", "helpers", "misc", "manager"}
    assert not [path for path in modules(SERVICE, APPLICATION, CONNECTORS) if path.stem in banned]


def test_every_module_has_a_docstring() -> None:
    """Add a docstring that describes the module."""
    assert not [path for path in modules(SERVICE, CONNECTORS) if not ast.get_docstring(ast.parse(path.read_text()))]


def test_the_core_has_no_mocks() -> None:
    """Test the core with plain values; a mock would hide that a core module does I/O."""
    tests = Path(__file__).parent / "unit" / "core"
    assert not [path for path in tests.rglob("*.py") if "mock" in imported(path) or "unittest" in imported(path)]


def test_the_picture_of_the_packages_is_up_to_date() -> None:
    """Run ``.venv/bin/python -m headrace_dev.packages``, and look at docs/packages.svg."""
    assert PICTURE.read_text(encoding="utf-8") == packages_svg()
    shown = {path.stem for path in SERVICE.glob("*.py")} | {path.parent.name for path in SERVICE.glob("*/__init__.py")}
    missing = [name for name in shown - {"__init__"} if f">{name}</text>" not in packages_svg()]
    assert not missing, "add the package to the contract 'service layers' in pyproject.toml"


def test_a_long_module_names_its_tests() -> None:
    """Give a module of more than 150 lines a test file of its name, or a line ``Tests: ...`` in its docstring."""
    root = Path(__file__).parent
    names = {path.name for path in root.rglob("test_*.py")}
    for path in modules(SERVICE, CONNECTORS, APPLICATION):
        text = path.read_text()
        docstring = ast.get_docstring(ast.parse(text)) or ""
        suites = re.findall(r"``tests/([\w/.]+)``", docstring.partition("Tests:")[2])
        assert text.count("\n") <= 150 or suites or f"test_{path.name}" in names, path
        assert [suite for suite in suites if not (root / suite).exists()] == [], path
