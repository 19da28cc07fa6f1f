"""Which names connectors may have: what requests and connector files are checked for alike."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.model.errors import RestError

Properties = Mapping[str, str | None]
_UNADDRESSABLE = frozenset("/\\%")
_MAX_BYTES = 1024
"""Percent-encoded three times as long, a name fits into the 16 KiB that a request's head may have."""


def named(name: str, config: Properties) -> dict[str, str | None]:
    """The configuration with its ``name``. Raises RestError 400 if it says another one."""
    inside = config.get("name")
    if inside is not None and inside != name:
        raise RestError(
            f"Connector name configuration ({inside}) doesn't match connector name in the URL ({name})", 400
        )
    return {**config, "name": name}


def check_addressable(name: str) -> None:
    """Refuse names that no request can address; Connect accepts them (``connect.md`` section 20)."""
    if _UNADDRESSABLE & set(name) or name in (".", ".."):
        raise RestError(
            f"The name {name} cannot be addressed in a URL: it may not be . or .., nor contain / \\ or %", 400
        )
    if len(name.encode(errors="surrogatepass")) > _MAX_BYTES:
        raise RestError(f"The connector's name is longer than {_MAX_BYTES} bytes; choose a shorter one", 400)
