"""Parts that the pipelines share: options, the measurement of stages, and schema evolution."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.config.sink_options import SourceSettings, TableSettings
from headrace.core.model.errors import Fatal
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import LakeTable

log = logging.getLogger(__name__)


class Stages(Protocol):
    """Measures the time of stages: ``stages("fold")`` measures its block."""

    def __call__(self, stage: str) -> AbstractContextManager[None]:
        """Measure one stage of one batch."""


_TABLES, _SOURCE, _RESELECT = TableSettings(), SourceSettings(), ReselectOptions()


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """Options of the connector for applying changes. Times in microseconds.

    ``shared``: the operator has named a key, so that several source tables may share one lake table.
    ``unknown_null_mode`` is for histories; in other tables reselect applies it. ``reads_on`` is for ``Tombstones``.
    """

    unresolved_insert_mode: str = _RESELECT.unresolved_insert_mode
    unknown_null_mode: str = _RESELECT.unknown_null_mode
    evolve: bool = _TABLES.evolve
    position_regression: int = _SOURCE.position_regression
    tombstone_retention: int = _TABLES.tombstone_retention
    shared: bool = False
    reads_on: bool = True


def evolve(name: str, table: LakeTable, wanted: pa.Schema, key_fields: Sequence[str], *, new_columns: bool) -> None:
    """Add the columns that ``table`` lacks, or create it, by ``schema.evolution`` (``merge.md`` section 8).

    Raises Fatal if the table lacks a column and ``new_columns`` is false; the message contains ``name``.
    """
    stored = table.schema()
    if stored is not None and not new_columns and (new := sorted(set(wanted.names) - set(stored.names))):
        raise Fatal(f"{name}: new column(s) {', '.join(new)}, and schema.evolution is none")
    table.evolve(wanted, key_fields)
    if stored is None:
        key = ", ".join(key_fields) or "none"
        log.info("Table %s: created with %d column(s); key: %s", name, len(wanted.names), key)
