"""The site of the documentation: the build is strict, each link has a target, and nothing comes from other hosts.

``HEADRACE_SCREENSHOTS=folder`` keeps pictures of some pages in two widths and both schemes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "dev" / "docs_theme" / "assets" / "javascripts"
SHOWN = ("index", "migrate/iceberg-sink", "operations", "configuration", "performance", "guarantees", "architecture")
READ = ("index", "migrate/iceberg-sink")
"""Pages that axe reads, on the desktop: it takes seconds for the largest ones."""
WIDTHS = {390: ("light",), 1440: ("light", "dark")}
pytestmark = pytest.mark.skipif(
    find_spec("material") is None, reason="needs the packages of requirements/docs.txt: make docs"
)


class _Links(HTMLParser):
    """What a page links to, what it loads, and the parts of it that have a name."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.parts: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.parts.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(values["href"])
        elif "src" in values:
            self.loads.append(values["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, as ``make docs`` builds it."""
    folder = tmp_path_factory.mktemp("site")
    built = build("mkdocs.yml", folder)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> Mapping[Path, _Links]:
    return {page: _Links(page) for page in site.rglob("*.html") if page.name != "404.html"}  # it is for a server


def build(config: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_every_link_has_its_target(pages: Mapping[Path, _Links]) -> None:
    """Each link within the site leads to a file of it, and to a named part, if it names one."""
    checked = 0
    for page, found in pages.items():
        for link in found.links:
            address = urlsplit(link)
            if address.scheme:
                assert address.scheme in ("http", "https"), f"{page.name}: {link}"
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            assert target.is_file(), f"{page.name} links to {link}"
            if address.fragment and target in pages and address.fragment != "__skip":
                assert unquote(address.fragment) in pages[target].parts, f"{page.name} links to {link}"
            checked += 1
    assert checked > 1000


def test_every_page_of_the_documentation_has_its_page(site: Path) -> None:
    """So has each file of the repository that a page links to, such as an example of a worker file."""
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / (name.with_name("index.html") if page.name == "README.md" else name)).is_file(), name
    example = (site / "repository" / "config" / "worker.properties.html").read_text()
    assert "config.storage.topic" in example


def test_nothing_comes_from_another_host(pages: Mapping[Path, _Links], site: Path) -> None:
    """Pages load files of the site only: no fonts, no scripts and no pictures of other hosts."""
    for page, found in pages.items():
        for load in found.loads:
            assert (page.parent / urlsplit(load).path).resolve().is_relative_to(site), f"{page.name} loads {load}"
            assert not urlsplit(load).netloc, f"{page.name} loads {load}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[x](decisions/absent)", "decisions/absent has no target"),
        ("[x](index.md#absent)", "'index.md#absent', but there is no such anchor"),
        ("[x](../absent.properties)", "absent.properties has no target"),
    ],
)
def test_a_broken_link_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    """The build fails and names the link, whether a page, a heading or a file outside of docs is missing."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# A page\n\n{text}\n")
    config = tmp_path / "mkdocs.yml"
    settings = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[0]
    for name in ("dev/docs_theme", "dev/headrace_dev/docs_site.py"):
        settings = settings.replace(name, str(ROOT / name))
    config.write_text(settings + "\nnav:\n  - index.md\n")
    built = build(config, tmp_path / "site")
    assert built.returncode != 0
    assert message in built.stderr


def test_scripts_of_other_projects_are_as_their_packages_contain_them() -> None:
    """Nobody can change one unnoticed, or add one without its license."""
    sums = dict(reversed(line.split()) for line in (SCRIPTS / "SHA256SUMS").read_text().splitlines())
    assert {path.name: sha256(path.read_bytes()).hexdigest() for path in SCRIPTS.glob("*.js")} == sums
    licenses = (SCRIPTS / "LICENSES.txt").read_text()
    assert [name for name in sums if name not in licenses] == []


def test_the_search_needs_no_server(site: Path, browser: Browser) -> None:
    """From the file system, a search for an option finds its page, and the browser asks no host."""
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    search = page.get_by_role("textbox", name="Search")
    search.fill("freshness.target.ms")  # the page reads the index now, and may miss what was typed before
    expect(page.locator(".md-search-result__meta")).not_to_contain_text("Initializing", timeout=90_000)
    search.press("End")
    found = page.locator(".md-search-result__link")
    expect(found.filter(has_text="Freshness targets").first).to_be_attached(timeout=90_000)
    page.close()
    assert [url for url in requests if re.match(r"https?:", url)] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_a_phone_and_a_desktop(site: Path, browser: Browser, width: int) -> None:
    """No page is wider than the window, and axe finds no violation of WCAG 2.2 AA on the desktop.

    Wide tables, code and pictures scroll for themselves.
    """
    pictures = os.environ.get("HEADRACE_SCREENSHOTS")
    for scheme in ("light", "dark") if pictures else WIDTHS[width]:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        for name in SHOWN if pictures or width == min(WIDTHS) else READ:
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert page.evaluate("getComputedStyle(document.body).colorScheme") == scheme
            if name in READ and width == max(WIDTHS):
                answer = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
                found = [f"{each['id']}: {each['nodes'][0]['html']}" for each in answer.response["violations"]]
                assert found == [], f"{name} {scheme}"
            if pictures:
                page.screenshot(path=Path(pictures) / f"docs-{name.replace('/', '-')}-{width}-{scheme}.png")
        context.close()
