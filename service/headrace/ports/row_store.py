"""The store of the reselect cache's rows. ``RowStore`` itself is declared where the core calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.reselect.cache.rows import CacheLimits
from headrace.core.reselect.cache.rows import RowStore as RowStore
from headrace.core.reselect.cache.rows import StoreFailed as StoreFailed


@dataclass(frozen=True, slots=True)
class RowStoreOptions:
    """What a store of the reselect cache's rows is opened with: its bounds, whose it is, and its type's own options.

    ``properties`` are the connector's ``reselect.cache.<type>.*`` without that prefix.
    """

    limits: CacheLimits
    connector: str
    task: int
    properties: Mapping[str, str] = field(default_factory=dict)


class OpenRowStore(Protocol):
    """What an entry point of ``headrace.reselect_caches`` names, whose name is a value of ``reselect.cache.type``."""

    def __call__(self, options: RowStoreOptions, /) -> RowStore:
        """Open the store of one task. Raises ConfigError or Retriable, whose messages reach logs and REST answers."""
