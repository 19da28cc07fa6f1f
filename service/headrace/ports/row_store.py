"""The store of the reselect cache's rows. ``RowStore`` itself is declared where the core calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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


OpenRowStore = Callable[[RowStoreOptions], RowStore]
"""What an entry point of ``headrace.reselect_caches`` names."""
