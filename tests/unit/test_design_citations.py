"""Tests that the sections, modules and tests that design pages and their citations name exist.

A citation is "``page.md`` section 2.1", or "``page.md`` sections 2 and 3". A file that cites pages may then write
"section 2.1" alone. docs/guarantees.md has no numbers: a citation names the title of a section or of a row in quotation
marks, or only the page.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = ROOT / "docs" / "design"
PAGES = sorted(DESIGN.glob("*.md"))
FOLDERS = ("service", "connectors", "dev", "tests", "benchmarks", "docs", "config", "helm", "changelog.d")
SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".properties", ".txt", ".sh"}
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in SUFFIXES and "fixtures" not in path.parts and path != Path(__file__)
) + [ROOT / name for name in ("Makefile", "Dockerfile", "pyproject.toml", "README.md", "CHANGELOG.md")]

NUMBER = r"\d+(?:\.\d+)*"
NUMBERS = rf"sections? ({NUMBER}(?:(?:, | and | to |, and ){NUMBER})*)"
CITATION = re.compile(rf"\b([\w-]+\.md) {NUMBERS}")
TITLE = r"""(?:"[^"]+"|'[^']+')"""
TITLES = re.compile(rf"guarantees\.md,? ({TITLE}(?: and {TITLE})*)")
JOIN = re.compile(r"""(["']) \1""")  # between two parts of a text in code
BARE = re.compile(rf"\b[Ss]ection{NUMBERS.removeprefix('section')}")

on_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


@cache
def sections() -> Mapping[str, Collection[str]]:
    """Return the numbers of the headings of each design page, by its file name."""
    return {page.name: re.findall(rf"^#+ ({NUMBER})\.? ", page.read_text(), re.MULTILINE) for page in PAGES}


@cache
def guarantee_titles() -> Collection[str]:
    """Return the headings of docs/guarantees.md and what is bold in it: promises and situations."""
    text = (ROOT / "docs" / "guarantees.md").read_text().replace("`", "")
    bold = re.findall(r"\*\*(.+?)\.?\*\*", text)
    return {*re.findall(r"^#+ (.*)$", text, re.MULTILINE), *bold}


@cache
def markdown_files() -> Collection[str]:
    """Return the names of all Markdown files of the repository."""
    folders = (ROOT / name for name in FOLDERS)
    return {path.name for folder in folders for path in folder.rglob("*.md")} | {
        path.name for path in ROOT.glob("*.md")
    }


@cache
def defined_tests() -> Mapping[str, Collection[str]]:
    """Return the tests of each file below ``tests``, by the file's name."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("*.py"):
        found.setdefault(path.name, set()).update(re.findall(r"\bdef (test_\w+)", path.read_text()))
    return found


@cache
def modules() -> Collection[str]:
    """Return the names of all Python files."""
    return {path.name for path in FILES if path.suffix == ".py"} | {Path(__file__).name}


def plain(text: str) -> str:
    """Return ``text`` in one line, without comment marks, backticks and the targets of links."""
    text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", text)
    return re.sub(r"\s*\n\s*(?:#+:? )?", " ", text).replace("`", "")


def wrong_citations(text: str, own: str | None = None) -> Iterator[str]:
    """Return the errors of the citations in a file. ``own`` is its name if it is a design page."""
    text = plain(text)
    cited = {own} if own else set()
    for page in re.findall(r"(?<![\w>}*])([\w-]+\.md)\b", text):
        if page not in markdown_files():
            yield f"{page} is not in the repository"
        elif page in sections():
            cited.add(page)
    for titles in TITLES.findall(JOIN.sub("", text)):
        named = (title[1:-1] for title in re.findall(TITLE, titles))
        yield from (f"guarantees.md has no {title!r}" for title in named if title not in guarantee_titles())
    unnamed = rf"\b(?:{'|'.join(sections())})\)?,? \(?\d[\d.]*"
    yield from (f"'{found}' lacks the word section" for found in re.findall(unnamed, text))
    for page, numbers in CITATION.findall(text):
        known = sections().get(page, ())
        yield from (f"{page} has no section {number}" for number in re.findall(NUMBER, numbers) if number not in known)
    known = {number for page in cited for number in sections()[page]}
    for numbers in BARE.findall(CITATION.sub("", text)):
        yield from (
            f"section {number} is in no page that is cited"
            for number in re.findall(NUMBER, numbers)
            if number not in known
        )


def test_citations_name_existing_sections() -> None:
    """Each page that a file of the repository cites exists, and has the cited section."""
    wrong = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in FILES
        for problem in wrong_citations(path.read_text(), path.name if path in PAGES else None)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        '"""Docs (``merge.md`` section 99)."""',
        '"""Docs (``merge.md`` sections 2 and 2.99)."""',
        "# see ``reselect.md``\n# section 5.77\n",
        '"""Docs (``merge.md`` 5)."""',
        '"""Docs (``faust-notes.md``)."""',
        '"""Docs (section 3)."""',
        '"""Docs of ``connect.md``: see section 99."""',
        "see [merge.md](merge.md) section 99",
        '"""Docs (``docs/guarantees.md``, "Late events are wrong")."""',
        'TEXT = "docs/guarantees.md, \'A log "\n    "that was lost\'"',
    ],
)
def test_a_wrong_citation_is_found(text: str) -> None:
    """A wrong citation is found in each form, also over two lines."""
    assert list(wrong_citations(text))


@pytest.mark.parametrize(
    "text",
    [
        '"""Docs (``merge.md`` section 2.6), then section 3."""',
        "# ``reselect.md``\n# sections 5.3 and 5.4; connector 3.4.1",
        '"""Docs (``docs/states.md``)."""',
        'TEXT = "docs/guarantees.md, \'A log "\n    "that was cut\'"',
        '# docs/guarantees.md, "Late events are harmless" and "Sources without positions"',
    ],
)
def test_a_right_citation_is_accepted(text: str) -> None:
    """A correct citation is accepted, also over two lines and next to other numbers."""
    assert list(wrong_citations(text)) == []


@on_every_page
def test_tests_that_are_named_exist(page: Path) -> None:
    """Each test that a design page cites as ``file.py::test_name`` exists."""
    text = page.read_text()
    named = re.findall(r"`(\w+\.py)::(test_\w+)`", text)
    assert [f"{file}::{test}" for file, test in named if test not in defined_tests().get(file, ())] == []
    alone = re.findall(r"`(test_\w+)`", text)
    assert alone == [], f"{page.name}: name the file of {alone} as well"


@on_every_page
def test_modules_that_are_named_exist(page: Path) -> None:
    """Each module that a design page names by its file name exists."""
    assert sorted(set(re.findall(r"\b(\w+\.py)\b", page.read_text())) - set(modules())) == []


def test_the_index_has_every_page() -> None:
    """The index of the design pages links to each page."""
    index = (DESIGN / "README.md").read_text()
    assert [page.name for page in PAGES if page.name != "README.md" and f"]({page.name})" not in index] == []
