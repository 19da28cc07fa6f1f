"""Tests of the documentation: links, commands, options, and the tables of types."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from recordings.records import POSTGRES, dump, recording, variant

from headrace.config.connector import CONNECTOR_OPTIONS
from headrace.config.keys_without_effect import TOPIC_SETTINGS, called_here
from headrace.core.doctor import clocks, debezium, machine, readers, topics, versions
from headrace.core.doctor import lake as doctor_lake
from headrace.core.model.arrow_columns import arrow_type
from headrace.core.model.schema import schema_from_json
from headrace.transforms.registry import transforms
from headrace_app.command import main
from headrace_connectors.lakehouse.schema import VERSION_COLUMNS, lake_type, sql_type
from headrace_connectors.sql import postgres_doctor

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for folder in (".", "docs", "docs/decisions", "docs/design", "docs/migrate", "changelog.d", "helm/headrace")
    for page in (ROOT / folder).glob("*.md")
)
OF_THE_SITE = sorted((ROOT / "docs").rglob("*.md"))
MAKEFILE = (ROOT / "Makefile").read_text()
FOREIGN = (
    "incremental.snapshot.",
    "max.batch.size",
    "max.queue.size",
    "read.only",
    "signal.",
    "allowed.paths",
    "allowlist.pattern",
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
    "ssl.",
    "connections.max.",
    "write.",
    "metadata.max.",
    "snapshot.",
    "slot.",
    "signal.",
    "history.",
    "gc.enabled",
    "headrace.",
    "topic.",
    "skipped.",
    "publication.",
    "publish.",
    "table.exclude.",
    "column.propagate.",
    "bigint.",
    "replace.null.",
    "ignore.default.",
    "offset.metadata.",
    "add.",
    "value.converter.",
    "message.",
    "consumer.",
    "producer.",
    "admin.",
    "tls.",  # the keys of a TLS Secret
    "hoodie.",
    "kafka.",  # options of Spark's Kafka source
    "shop.public.",  # topics of examples
)
SOURCE_ROOTS = ("", "service/", "service/headrace/", "connectors/headrace_connectors/")

on_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


@on_every_page
def test_links_have_existing_targets(page: Path) -> None:
    """Each relative link names an existing file, and each linked part of a page has its heading."""
    for target, _, part in re.findall(r"\]\(([^)#\s]*)(#([^)\s]*))?\)", page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name} links to {target}"
            assert not part or part in _anchors(found), f"{page.name} links to {target}#{part}"


@on_every_page
def test_files_that_are_named_exist(page: Path) -> None:
    """Each file of the repository that a page names exists."""
    for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]*\.(?:py|sh|md|toml|txt|sha256|properties|json))`", page.read_text()):
        assert any((ROOT / root / name).exists() for root in SOURCE_ROOTS), f"{page.name} names {name}"


@on_every_page
def test_make_targets_that_are_named_exist(page: Path) -> None:
    """Each ``make`` target that a page names is in the Makefile."""
    for target in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"{page.name} names make {target}"


@on_every_page
def test_no_text_is_treated_as_an_html_tag(page: Path) -> None:
    """A page has no <name> outside of code, which a renderer treats as HTML and does not show."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    assert re.findall(r"(?<!\\)</?[a-zA-Z][\w.-]*/?>", text) == []


def test_packages_of_the_python_example_are_installed() -> None:
    """The README's ``pip install`` has every package that its example in Python imports, as the tests lock it."""
    text = (ROOT / "README.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = re.findall(r"pip install '\.\[([^]]*)\]'", text)
    installed = [
        *project["project"]["dependencies"],
        *(each for extra in extras for each in project["project"]["optional-dependencies"][extra]),
    ]
    locked = (ROOT / "requirements" / "dev.txt").read_text()
    imported = set(re.findall(r"^ *(?:from|import) (\w+)", _code(text, "python"), re.MULTILINE))
    assert imported
    for name in imported:
        requirement = next((Requirement(each) for each in installed if Requirement(each).name == name), None)
        assert requirement is not None, f"README.md imports {name} and does not install it"
        version = re.search(rf"^{name}==(\S+)", locked, re.MULTILINE)
        assert version is not None
        assert version[1] in requirement.specifier


def test_every_page_is_reached_from_the_readme() -> None:
    """``README.md`` names each page of ``docs``; those of its folders are reached from these."""
    text = (ROOT / "README.md").read_text()
    assert [page.name for page in ROOT.glob("docs/*.md") if f"docs/{page.name}" not in text] == []


DECISIONS = [page for page in PAGES if page.parent.name == "decisions"]
LONGEST_RECORD = 12


@pytest.mark.parametrize("page", DECISIONS, ids=lambda path: path.name)
def test_decision_records_are_short_and_complete(page: Path) -> None:
    """Each record has at most 12 lines, in the parts that docs/why.md names; figures may be absent."""
    records = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]
    assert records
    for record in records:
        title, *lines = [line for line in record.splitlines() if line]
        parts = re.findall(r"^- \*\*(\w+)\.\*\* ", record, re.MULTILINE)
        assert [part for part in parts if part != "Figures"] == ["Context", "Decision", "Consequences"], title
        assert len(lines) <= LONGEST_RECORD, f"{title}: {len(lines)} lines"


def test_the_index_has_every_decision() -> None:
    """``docs/why.md`` lists each record under its title, in the order of its page."""
    listed = re.findall(r"^- \[(.*)]\(decisions/([\w.-]+)#.*\)$", (ROOT / "docs" / "why.md").read_text(), re.MULTILINE)
    for page in DECISIONS:
        titles = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        assert [title for title, name in listed if name == page.name] == titles, page.name


OTHER_SINKS_PAGE = "migration.md"
"""The page that names options of other sinks. ``config/test_other_sinks.py`` checks their equivalents."""
OUR_PAGES = [page for page in PAGES if "helm" not in page.parts and page.name != OTHER_SINKS_PAGE]


@pytest.mark.parametrize("page", OUR_PAGES, ids=lambda path: path.name)
def test_options_that_are_named_exist(page: Path) -> None:
    """A dotted name in code is an option or a value of the chart, or begins as those of Kafka, Spark and Iceberg do."""
    chart = json.loads((ROOT / "helm" / "headrace" / "values.schema.json").read_text())["properties"]
    options = (ROOT / "docs" / "configuration.md").read_text()
    of_transforms = {name for each in transforms().values() for name in each.options.names()}
    for name in re.findall(r"`([a-z]+(?:[.-][a-z]+)*\.[a-z-]+)(?:=[^`]*)?`", page.read_text()):
        a_file = name.endswith((".py", ".md")) or (ROOT / name).exists()
        value, _, key = name.partition(".")
        in_chart = key in chart.get(value, {}).get("properties", {})
        known = name in of_transforms or f"`{name}`" in options or in_chart
        of_another_sink = page.parent.name == "migrate" and called_here(name) is not None
        foreign = name.startswith(FOREIGN) or name in TOPIC_SETTINGS
        assert a_file or foreign or known or of_another_sink, f"{page.name} names {name}"


MIGRATION = [page for page in PAGES if page.parent.name == "migrate"]


@pytest.mark.parametrize("page", MIGRATION, ids=lambda path: path.name)
def test_connectors_before_and_after_a_migration(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``headrace validate`` accepts the connector after it, and names each key of another sink before it."""
    valid = 0
    for text in re.findall(r"^```json\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        file = tmp_path / "shop.json"
        file.write_text(text)
        config = json.loads(text)["config"]
        if config["connector.class"] == "LakehouseSink":
            assert main(["validate", str(file)]) == 0, capsys.readouterr().out
            valid += 1
        else:
            assert main(["validate", str(file)]) == 1
            answer = capsys.readouterr().out
            for name in config:
                ours = name in CONNECTOR_OPTIONS or name.startswith("transforms.")
                assert ours or name in answer, f"{page.name}: {name} is no key of the sink"
    assert valid == 1


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """``mkdocs.yml`` names each page of ``docs`` once."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"[\w./-]+\.md$", navigation, re.MULTILINE)
    assert sorted(named) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in OF_THE_SITE)


def test_the_first_page_has_the_commands_of_the_readme() -> None:
    """Each line of code on the first page of the site is in the README as well, so that both stay equal."""
    readme = {line.strip() for line in (ROOT / "README.md").read_text().splitlines()}
    code = re.findall(r"^ *```\w*\n(.*?)^ *```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL | re.MULTILINE)
    lines = [line.strip() for block in code for line in block.splitlines() if line.strip()]
    assert lines
    assert [line for line in lines if line not in readme] == []


@pytest.mark.parametrize("page", OF_THE_SITE, ids=lambda path: path.name)
def test_blocks_of_list_items_are_read_alike_everywhere(page: Path) -> None:
    """A block within a list item is indented by four columns, and an empty line separates it from the next item.

    Hosts of repositories read less indentation as well, the site does not.
    """
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^ {1,3}(?:```|\|).*", text, re.MULTILINE) == []
    assert re.findall(r"(?<=\n\n) {1,3}\S.*", text) == []
    assert re.findall(r"^ {4}\S.*\n(?:\d+\.|-) .*", text, re.MULTILINE) == []


@cache
def documented_types(section: str = "Types: database, Kafka Connect, lake") -> dict[str, str]:
    """Return the lake type by the database's type, from that section of ``docs/types.md``."""
    text = (ROOT / "docs" / "types.md").read_text().partition(f"# {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| .*? \| (.*?) \| .*\|$", text, re.MULTILINE)
    return {name: lake for names, lake in rows for name in re.findall(r"`([^`]+)`", names)}


def recorded_types() -> Iterator[tuple[str, str, str]]:
    """Return name, PostgreSQL type and lake type of every column that a connector with default settings has sent."""
    for topic in ("pg_a.public.all_types", "pg_a.public.array_types"):
        declared = _declared_types(topic.rpartition(".")[2])
        envelope = json.loads(recording("a")[topic][0].value or b"")["schema"]
        after = next(field for field in envelope["fields"] if field["field"] == "after")
        for field in after["fields"]:
            lake = sql_type(lake_type(arrow_type(schema_from_json(field)))).replace("`", "")
            yield field["field"], declared[field["field"]], _general(lake)


def test_types_match_recorded_events() -> None:
    """Each column of the recorded tables has the documented lake type.

    Arrays and domains have that of their base type.
    """
    table = documented_types()
    checked = 0
    for column, declared, lake in recorded_types():
        element = declared.removesuffix("[]").removesuffix("[]")
        if element not in table or column == "a_bit":  # a domain; or bit(n)[], which docs/types.md distinguishes
            assert column.startswith("c_dom") or column == "a_bit", f"docs/types.md lacks {element}"
            continue
        wanted = table[element]
        assert lake == (f"ARRAY<{wanted}>" if declared.endswith("[]") else wanted), f"{column} {declared}"
        checked += 1
    assert checked > 90


def test_types_of_mariadb_match_recorded_events() -> None:
    """Each column of the recorded MariaDB table has the documented lake type. Display widths are ignored."""
    table = documented_types("MySQL and MariaDB")
    declared = dump(variant("my").dump_file)["inv.types"].types
    envelope = json.loads(recording("my")["my.inv.types"][0].value or b"")["schema"]
    after = next(field for field in envelope["fields"] if field["field"] == "after")
    for field in after["fields"]:
        kind = re.sub(r"((?:int|year))\(\d+\)", r"\1", re.sub(r"\('.*'\)", "", declared[field["field"]]))
        lake = sql_type(lake_type(arrow_type(schema_from_json(field)))).replace("`", "")
        assert table[_general(kind)] == _general(lake), f"{field['field']} {kind}"


def test_own_columns_are_documented() -> None:
    """``docs/types.md`` lists the columns that Headrace adds, with the type that they have in every table."""
    text = (ROOT / "docs" / "types.md").read_text()
    missing = [
        column.name for column in VERSION_COLUMNS if f"| `{column.name}` | {sql_type(column.type)} |" not in text
    ]
    assert missing == []


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _code(page: str, language: str) -> str:
    return "\n".join(re.findall(rf"^ *```{language}\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE))


def _declared_types(table: str) -> dict[str, str]:
    """Return the column types that the recording's SQL declares, with lengths replaced by letters."""
    sql = (POSTGRES / "sql" / "00_schema.sql").read_text()
    body = re.search(rf"CREATE TABLE public\.{table} \((.*?)^\);", sql, re.DOTALL | re.MULTILINE)
    assert body is not None
    columns = re.findall(r'(?:^|,)\s*(\w+) ("?[a-z][^,(]*(?:\([^)]*\))?(?:\[\])*)', body[1], re.MULTILINE)
    constraint = re.compile(r" (PRIMARY|NOT|DEFAULT|GENERATED)\b.*", re.DOTALL)
    return {name: _general(constraint.sub("", declared).strip()) for name, declared in columns}


def _general(kind: str) -> str:
    """``numeric(10,2)`` -> ``numeric(p,s)``, ``char(5)`` -> ``char(n)``; ``bit(1)`` is a separate type."""
    if kind == "bit(1)":
        return kind
    return re.sub(r"\(\d+\)", "(n)", re.sub(r"\(\d+, ?\d+\)", "(p,s)", kind))


def test_the_readers_of_the_doctor_are_those_that_are_documented() -> None:
    """``docs/operations.md`` says of each whether it reads version 3, which is what ``lake.readers`` checks."""
    page = (ROOT / "docs/operations.md").read_text().partition("| reader | version 3 (default) |")[2]
    rows = re.findall(r"^\| (\w+).*? \| \[?(yes|no)\b", page.partition("### ")[0], re.MULTILINE)
    documented = {name.lower(): answer == "yes" for name, answer in rows}
    assert documented == {name: reader.reads_version_3 for name, reader in readers.READERS.items()}


def test_every_finding_of_the_doctor_is_documented() -> None:
    """``docs/operations.md`` has a line for each kind."""
    page = (ROOT / "docs/operations.md").read_text()
    documented = re.findall(
        r"^\| `((?:topic|source|table|debezium|lake|worker|version)-[a-z-]+)` \|", page, re.MULTILINE
    )
    of_machine = [*machine.Rule, *clocks.Rule, *versions.Rule]
    assert documented == [*topics.Rule, *postgres_doctor.Rule, *debezium.Rule, *doctor_lake.Rule, *of_machine]


def test_the_releases_that_the_doctor_knows_are_those_that_are_tested() -> None:
    """The last column of ``docs/support.md``, or that of databases, names each of them."""
    rows = re.findall(r"^\| ([^|]+) \| (.+) \|$", (ROOT / "docs/support.md").read_text(), re.MULTILINE)
    documented = dict(rows)
    for name, releases in versions.TESTED.items():
        tested = documented[name].partition(" | ")[2]
        assert [release for release in releases if not re.search(rf"\b{re.escape(release)}\b", tested)] == [], name
