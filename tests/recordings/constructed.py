"""The constructed recordings of Oracle (``tests/fixtures/oracle``), converted to the other binary modes.

``binary.handling.mode`` determines the form of a BLOB and of its placeholder (``reselect.md`` section 2.3).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

BLOB = "PIC"
TEXTS: Mapping[str, Callable[[bytes], str]] = {
    "hex": bytes.hex,
    "base64": lambda value: base64.b64encode(value).decode(),
    "base64-url-safe": lambda value: base64.urlsafe_b64encode(value).decode(),
}
"""The modes that make text of bytes."""


def in_binary_mode(value: bytes | None, mode: str) -> bytes | None:
    """A record's value in the form of ``mode``; the recording itself has the mode ``bytes``."""
    if value is None or mode == "bytes":
        return value
    document = json.loads(value)
    payload = document.get("payload", document)
    for image in filter(None, (payload["before"], payload["after"])):
        if image[BLOB] is not None:
            image[BLOB] = TEXTS[mode](base64.b64decode(image[BLOB]))
    for row in document.get("schema", {}).get("fields", ()):
        _declare_text(row)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _declare_text(row: dict[str, Any]) -> None:
    for column in row.get("fields", ()):
        if column["field"] == BLOB:
            column["type"] = "string"
