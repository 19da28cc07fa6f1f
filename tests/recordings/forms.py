"""The form of one type: from the text of PostgreSQL to a lake column."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def same(value: Any) -> Any:
    """The unchanged value."""
    return value


def base64_text(value: bytes) -> str:
    """Bytes in the form of JsonConverter."""
    return base64.b64encode(value).decode()


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one type: text of PostgreSQL -> Connect value -> value of a typed or an untyped column.

    ``seen`` is applied to the stored value before it is compared, if several texts mean the same.
    """

    read: Callable[[str], Any]
    lake: Callable[[Any], Any] = same
    bare: Callable[[Any], Any] = same
    seen: Callable[[Any], Any] = same
