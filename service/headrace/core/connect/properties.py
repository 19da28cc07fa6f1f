"""Java ``.properties`` texts, and the environment's form of the same keys (``connect.md`` section 7)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?", re.DOTALL)


def parse_properties(document: str) -> dict[str, str]:
    """Read a properties file as ``java.util.Properties.load`` does; of a key that stands twice the last one counts.

    Raises ValueError where it raises, which names the key and shows no value.
    """
    properties = {}
    for line in _logical_lines(document):
        match = _KEY.match(line)
        if match is not None:
            key = _unescape(match[1], "a key")
            properties[key] = _unescape(line[match.end() :], f"the value of {key}")
    return properties


def _logical_lines(document: str) -> Iterator[str]:
    pending = ""
    for line in _LINE_END.split(document):  # str.splitlines() knows more, and would cut a password
        line = line.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if _continues(pending):
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _continues(line: str) -> bool:
    """Whether an odd number of backslashes ends the line."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, place: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[2] == "u":
            raise ValueError(rf"Malformed \uxxxx encoding in {place}")
        return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])

    units = _ESCAPED.sub(replace, text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # an escape is half of some characters


def properties_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``CONNECT_BOOTSTRAP_SERVERS`` -> ``bootstrap.servers``, as the container images of Kafka Connect do.

    ``_`` stands for a dot, ``__`` for an underscore, ``___`` for a dash.
    """
    prefix = "CONNECT_"
    return {
        _dotted(name[len(prefix) :]): value
        for name, value in environment.items()
        if name.startswith(prefix) and len(name) > len(prefix)
    }


def _dotted(name: str) -> str:
    return re.sub(r"_{1,3}", lambda run: {1: ".", 2: "_", 3: "-"}[len(run[0])], name).lower()
