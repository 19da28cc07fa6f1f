"""The hook of mkdocs that builds the site of the documentation (``make docs``, ``mkdocs.yml``).

Pages of ``docs`` link to files of the repository: examples of configurations, the chart, the code. The site has a page
for each file or folder that a page links to, so that a copy of the site needs no server and no repository. A link to
something that does not exist is an error of the build.

Tests: ``tests/packaging/test_docs_site.py``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
COPIES = "repository/"
"""The folder of the site that has what is outside of ``docs``."""

_LINK = re.compile(r"(?<=\]\()(?P<target>[^()\s#]+)(?P<part>#[^()\s]*)?(?=\))")
_LANGUAGES = {".json": "json", ".properties": "properties", ".py": "python", ".toml": "toml", ".yaml": "yaml"}
_UNLISTED = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a page for each file and folder outside of ``docs`` that a page, or one of these, links to."""
    unread = [(DOCS + file.src_uri, file.content_string) for file in files.documentation_pages()]
    while unread:
        for target in _targets(*unread.pop()):
            uri = site_uri(target)
            if not target.startswith(DOCS) and files.get_file_from_path(uri) is None:
                text = _copy(target)
                files.append(File.generated(config, uri, content=text))
                if target.endswith(".md"):
                    unread.append((target, text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to what is outside of ``docs`` to its page. The first page has no other page beside it."""
    del config, files
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]
    source = uri.removeprefix(COPIES) if uri.startswith(COPIES) else DOCS + uri
    return _LINK.sub(lambda link: _site_link(link, source, uri), markdown) if source.endswith(".md") else markdown


def site_uri(path: str) -> str:
    """Return the source of the page that shows a file or folder of the repository.

    It is the path below ``docs`` for a page of the documentation, and a Markdown file below ``repository`` for others.
    """
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return COPIES + (path if path.endswith(".md") else f"{path}.md")


def _targets(page: str, text: str) -> Iterator[str]:
    """Yield the paths in the repository to which the text of a page links."""
    for link in _LINK.finditer(text):
        if (target := _path(page, link["target"])) is not None:
            yield target


def _path(page: str, target: str) -> str | None:
    """Return the path in the repository of a relative link; None for an address."""
    if re.match(r"[a-z]+:", target):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    if path.startswith("..") or not (ROOT / path).exists():
        raise PluginError(f"{page}: the link to {target} has no target in the repository; correct it")
    return path


def _site_link(link: re.Match[str], source: str, uri: str) -> str:
    path = _path(source, link["target"])
    if path is None or (path.startswith(DOCS) and uri == source.removeprefix(DOCS)):
        return link[0]
    return posixpath.relpath(site_uri(path), posixpath.dirname(uri) or ".") + (link["part"] or "")


def _copy(path: str) -> str:
    """Return the page of a file or folder: Markdown as it is, other files as code."""
    place = ROOT / path
    if path.endswith(".md"):
        return place.read_text(encoding="utf-8")
    members = sorted(each for each in place.rglob("*") if each.is_file()) if place.is_dir() else [place]
    return f"{_UNLISTED}# {path}\n\n" + "\n".join(_as_code(each, place) for each in members)


def _as_code(file: Path, folder: Path) -> str:
    heading = "" if file == folder else f"## {PurePosixPath(file.relative_to(folder))}\n\n"
    language = _LANGUAGES.get(file.suffix, "text")
    return f"{heading}````{language}\n{file.read_text(encoding='utf-8').rstrip()}\n````\n"
