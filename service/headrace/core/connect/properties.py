"""Parse Java ``.properties`` files, and the same keys in environment variables (``connect.md`` section 7).

A value may refer to a config provider: ``${provider:[path:]key}`` (KIP-297, ``connect.md`` section 10).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?", re.DOTALL)


def parse_properties(document: str) -> dict[str, str]:
    """Parse a properties file as ``java.util.Properties.load`` does; the last value of a repeated key counts.

    Raises ValueError where it raises an error. The message contains the key but no value.
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
    for line in _LINE_END.split(document):  # str.splitlines() also splits at other characters, as in a password
        line = line.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        backslashes = len(pending) - len(pending.rstrip("\\"))
        if backslashes % 2 == 1:  # the line continues
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str, where: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[2] == "u":
            raise ValueError(rf"Malformed \uxxxx encoding in {where}")
        return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])

    units = _ESCAPED.sub(replace, text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # some characters need two escapes


def properties_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return properties from variables such as ``CONNECT_BOOTSTRAP_SERVERS``, as Kafka Connect's images do.

    ``_`` represents a dot, ``__`` an underscore, ``___`` a dash.
    """
    prefix, separators = "CONNECT_", {1: ".", 2: "_", 3: "-"}
    properties = {}
    for name, value in environment.items():
        if name.startswith(prefix) and len(name) > len(prefix):
            key = re.sub(r"_{1,3}", lambda run: separators[len(run[0])], name[len(prefix) :])
            properties[key.lower()] = value
    return properties


_REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")  # the pattern of Kafka's ConfigTransformer

Lookup = Callable[[str, str, str], str | None]
"""Returns the value of (provider, path, key), or None if no provider has it. May raise ConfigError."""


def replace_references(value: str, lookup: Lookup) -> str:
    """Replace the references of a value; a reference without a value is kept."""

    def value_of(reference: re.Match[str]) -> str:
        resolved = lookup(reference[1], reference[2] or "", reference[3])
        return reference[0] if resolved is None else resolved

    return _REFERENCE.sub(value_of, value)


def references(value: str) -> Iterator[tuple[str, str, str]]:
    for reference in _REFERENCE.finditer(value):
        yield reference[1], reference[2] or "", reference[3]
