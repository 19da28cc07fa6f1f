"""The owner of a connector: what created it from a file, and may therefore change and delete it.

The worker stores the owner beside the configuration, not in it (``docs/decisions/workers.md``). A connector without an
owner was created over REST by a user or another tool.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DIRECTORY = "connectors.directory"
"""The owner of the connectors that the leader creates from the files of the option ``connectors.directory``."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}")
NAME_RULE = "1 to 200 of the characters A-Z a-z 0-9 . _ : @ -, the first a letter or digit"


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a connector.

    ``source`` is the name of the file that the owner read last. ``digest`` is that of the configuration that the owner
    wrote last, empty if the owner has written none: another digest of the stored configuration is drift.
    """

    owner: str
    source: str = ""
    digest: str = ""

    def document(self) -> dict[str, str]:
        """Return the JSON document that is stored."""
        return {"owner": self.owner, "source": self.source, "digest": self.digest}


def ownership(document: Mapping[str, Any]) -> Ownership:
    """Return the ownership in a stored document. Ignores members of later versions. Raises KeyError without owner."""
    return Ownership(str(document["owner"]), str(document.get("source", "")), str(document.get("digest", "")))


def is_owner_name(text: str) -> bool:
    """Return whether ``text`` may name an owner (``NAME_RULE``)."""
    return _NAME.fullmatch(text) is not None


def digest(config: Mapping[str, str]) -> str:
    """Return a digest of a configuration, independent of the order of its keys."""
    text = json.dumps(dict(config), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
