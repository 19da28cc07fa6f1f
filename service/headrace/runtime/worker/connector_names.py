"""Validation of connector names, for REST requests and connector files."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.model.errors import RestError

Properties = Mapping[str, str | None]
_UNADDRESSABLE = frozenset("/\\%")
_MAX_BYTES = 1024
"""Percent-encoding makes a name three times as long. It must fit into the 16 KiB of a request's head."""


def named(name: str, config: Properties) -> dict[str, str | None]:
    """Return the configuration with its ``name``. Raises RestError 400 if it contains another name."""
    configured = config.get("name")
    if configured is not None and configured != name:
        raise RestError(
            f"Connector name configuration ({configured}) doesn't match connector name in the URL ({name})", 400
        )
    return {**config, "name": name}


def check_addressable(name: str) -> None:
    """Reject names that no URL can contain, which Kafka Connect accepts (``connect.md`` section 20)."""
    if _UNADDRESSABLE & set(name) or name in (".", ".."):
        raise RestError(
            f"The name {name} cannot be addressed in a URL: it may not be . or .., nor contain / \\ or %", 400
        )
    if len(name.encode(errors="surrogatepass")) > _MAX_BYTES:
        raise RestError(f"The connector's name is longer than {_MAX_BYTES} bytes; choose a shorter one", 400)
