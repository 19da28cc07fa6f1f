"""The documentation: links lead somewhere, commands exist, the table of types is what a real connector gives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from recordings.records import POSTGRES, dump, recording, variant

from headrace.core.model.arrow_columns import arrow_type
from headrace.core.model.schema import schema_from_json
from headrace.transforms.registry import TRANSFORMS
from headrace_connectors.lakehouse.schema import VERSION_COLUMNS, lake_type, sql_type

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for folder in (".", "docs", "docs/design", "changelog.d", "helm/headrace")
    for page in (ROOT / folder).glob("*.md")
)
MAKEFILE = (ROOT / "Makefile").read_text()
FOREIGN = (
    "spark.",
    "enable.auto",
    "auto.offset.",
    "fetch.",
    "max.partition.",
    "isolation.",
    "transaction.state.",
    "max.poll.",
    "security.protocol",
    "sasl.",
    "write.",
    "metadata.max.",
    "history.",
    "headrace.",
    "topic.",
    "skipped.",
    "column.propagate.",
    "bigint.",
    "add.",
    "message.",
    "consumer.",
    "producer.",
    "admin.",
)
SOURCE_ROOTS = ("", "service/headrace/", "connectors/headrace_connectors/")

on_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


@on_every_page
def test_links_lead_somewhere(page: Path) -> None:
    """Relative ones to a file of the repository; a part of a page that is linked to has its heading."""
    for target, _, part in re.findall(r"\]\(([^)#\s]*)(#([^)\s]*))?\)", page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name} links to {target}"
            assert not part or part in _anchors(found), f"{page.name} links to {target}#{part}"


@on_every_page
def test_files_that_are_named_exist(page: Path) -> None:
    """A file that was renamed takes its mention along."""
    for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]*\.(?:py|sh|md|toml|txt|sha256|properties|json))`", page.read_text()):
        assert any((ROOT / root / name).exists() for root in SOURCE_ROOTS), f"{page.name} names {name}"


@on_every_page
def test_make_targets_that_are_named_exist(page: Path) -> None:
    """Commands that a reader copies."""
    for target in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"{page.name} says make {target}"


@on_every_page
def test_no_word_is_lost_as_a_tag(page: Path) -> None:
    """A <name> outside of code is HTML to whoever renders the page, and is not shown."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    assert re.findall(r"(?<!\\)</?[a-zA-Z][\w.-]*/?>", text) == []


def test_every_page_is_reached_from_the_readme() -> None:
    """A page that nobody finds helps nobody."""
    text = (ROOT / "README.md").read_text()
    assert [page.name for page in ROOT.glob("docs/*.md") if f"docs/{page.name}" not in text] == []


OF_OTHERS = "migration.md"
"""Names other sinks' options; what stands beside them is checked by ``config/test_other_sinks.py``."""
OUR_PAGES = [page for page in PAGES if "helm" not in page.parts and page.name != OF_OTHERS]


@pytest.mark.parametrize("page", OUR_PAGES, ids=lambda path: path.name)
def test_options_that_are_named_exist(page: Path) -> None:
    """A dotted name in code is an option of ours, or begins like one of Kafka's clients, Spark, Iceberg or a commit."""
    options = (ROOT / "docs" / "configuration.md").read_text()
    of_transforms = {name for each in TRANSFORMS.values() for name in each.options.names()}
    for name in re.findall(r"`([a-z]+(?:[.-][a-z]+)*\.[a-z-]+)(?:=[^`]*)?`", page.read_text()):
        a_file = name.endswith((".py", ".md")) or (ROOT / name).exists()
        known = name in of_transforms or f"`{name}`" in options
        assert a_file or name.startswith(FOREIGN) or known, f"{page.name} names {name}"


@cache
def documented_types(section: str = "Types: database, Kafka Connect, lake") -> dict[str, str]:
    """Lake type by the database's type, as that section of docs/types.md has them."""
    text = (ROOT / "docs" / "types.md").read_text().partition(f"# {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| .*? \| (.*?) \| .*\|$", text, re.MULTILINE)
    return {name: lake for names, lake in rows for name in re.findall(r"`([^`]+)`", names)}


def recorded_types() -> Iterator[tuple[str, str, str]]:
    """Column, PostgreSQL type and lake type of every column that a connector with default settings has sent."""
    for topic in ("pg_a.public.all_types", "pg_a.public.array_types"):
        declared = _declared_types(topic.rpartition(".")[2])
        envelope = json.loads(recording("a")[topic][0].value or b"")["schema"]
        after = next(field for field in envelope["fields"] if field["field"] == "after")
        for field in after["fields"]:
            lake = sql_type(lake_type(arrow_type(schema_from_json(field)))).replace("`", "")
            yield field["field"], declared[field["field"]], _general(lake)


def test_types_are_what_a_connector_gives() -> None:
    """Each column of the recorded tables of all types, arrays and domains by their base type."""
    table = documented_types()
    checked = 0
    for column, declared, lake in recorded_types():
        element = declared.removesuffix("[]").removesuffix("[]")
        if element not in table or column == "a_bit":  # a domain; or bit(n)[], which docs/types.md tells apart
            assert column.startswith("c_dom") or column == "a_bit", f"docs/types.md lacks {element}"
            continue
        wanted = table[element]
        assert lake == (f"ARRAY<{wanted}>" if declared.endswith("[]") else wanted), f"{column} {declared}"
        checked += 1
    assert checked > 90


def test_types_of_mariadb_are_what_a_connector_gives() -> None:
    """Each column of the recorded table of all types; widths that are shown but say nothing are left out."""
    table = documented_types("MySQL and MariaDB")
    declared = dump(variant("my").dump_file)["inv.types"].types
    envelope = json.loads(recording("my")["my.inv.types"][0].value or b"")["schema"]
    after = next(field for field in envelope["fields"] if field["field"] == "after")
    for field in after["fields"]:
        kind = re.sub(r"((?:int|year))\(\d+\)", r"\1", re.sub(r"\('.*'\)", "", declared[field["field"]]))
        lake = sql_type(lake_type(arrow_type(schema_from_json(field)))).replace("`", "")
        assert table[_general(kind)] == _general(lake), f"{field['field']} {kind}"


def test_own_columns_are_documented() -> None:
    """Under the types that they have in every table."""
    text = (ROOT / "docs" / "types.md").read_text()
    missing = [
        column.name for column in VERSION_COLUMNS if f"| `{column.name}` | {sql_type(column.type)} |" not in text
    ]
    assert missing == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _declared_types(table: str) -> dict[str, str]:
    """Column types as the recording's SQL declares them, lengths replaced by letters."""
    sql = (POSTGRES / "sql" / "00_schema.sql").read_text()
    body = re.search(rf"CREATE TABLE public\.{table} \((.*?)^\);", sql, re.DOTALL | re.MULTILINE)
    assert body is not None
    columns = re.findall(r'(?:^|,)\s*(\w+) ("?[a-z][^,(]*(?:\([^)]*\))?(?:\[\])*)', body[1], re.MULTILINE)
    constraint = re.compile(r" (PRIMARY|NOT|DEFAULT|GENERATED)\b.*", re.DOTALL)
    return {name: _general(constraint.sub("", declared).strip()) for name, declared in columns}


def _general(kind: str) -> str:
    """``numeric(10,2)`` -> ``numeric(p,s)``, ``char(5)`` -> ``char(n)``; a length of 1 of bits is a type of its own."""
    if kind == "bit(1)":
        return kind
    return re.sub(r"\(\d+\)", "(n)", re.sub(r"\(\d+, ?\d+\)", "(p,s)", kind))
