"""The difference between two configurations as text, without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headrace.core.connect.config_def import HIDDEN
from headrace.core.connect.connector_plan import changed_keys

_REFERENCE = re.compile(r"\$\{[^}:]*:[^}]*\}")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_MAX_SHOWN = 500


def diff_lines(before: Mapping[str, str], after: Mapping[str, str], is_hidden: Callable[[str], bool]) -> list[str]:
    """Return two lines for each changed key, one for an added or removed one, sorted by key.

    The value of a hidden key is shown only if it is a reference to a config provider. Credentials in URLs are never
    shown.
    """
    lines = []
    for key in changed_keys(before, after):
        for sign, config in (("-", before), ("+", after)):
            if key in config:
                lines.append(f"{sign} {key} = {_shown(config[key], hidden=is_hidden(key))}")
    return lines


def _shown(value: str, *, hidden: bool) -> str:
    if hidden and not _REFERENCE.fullmatch(value):
        return HIDDEN
    text = _CREDENTIALS.sub(f"{HIDDEN}@", value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text)} characters)"
