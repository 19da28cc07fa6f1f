"""How one type travels from the text of PostgreSQL to a lake column."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def same(value: Any) -> Any:
    """The value as it is."""
    return value


def base64_text(value: bytes) -> str:
    """Bytes as JsonConverter writes them."""
    return base64.b64encode(value).decode()


@dataclass(frozen=True, slots=True)
class Form:
    """How one type travels: text of PostgreSQL -> Connect value -> what stands in a typed or an untyped column.

    ``seen`` is applied to the stored value before it is compared, where several texts mean the same.
    """

    read: Callable[[str], Any]
    lake: Callable[[Any], Any] = same
    bare: Callable[[Any], Any] = same
    seen: Callable[[Any], Any] = same
