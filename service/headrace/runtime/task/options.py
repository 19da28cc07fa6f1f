"""What a sink task works with, made from a connector's configuration in ``task_factory.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.config.framework import ErrorSettings
from headrace.config.sink_options import TableSettings
from headrace.core.batch.batch import BatchPolicy
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.errors import Stage
from headrace.core.tables.field_selection import FieldSelection
from headrace.core.tables.naming import TableNaming
from headrace.ports import TableOptions
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.transforms.chain import Chain

_ERRORS, _TABLES = ErrorSettings(), TableSettings()


@dataclass(frozen=True, slots=True)
class SinkTaskOptions:
    """What a connector's configuration says to its tasks."""

    connector: str
    group: str
    namespace: str
    task: int = field(default=0, kw_only=True)
    naming: TableNaming
    envelope: EnvelopeOptions
    batches: BatchPolicy
    tables: TableOptions
    pipeline: PipelineOptions
    fields: FieldSelection = field(default_factory=FieldSelection)
    fills_defaults: bool = False
    dead_letters_unresolved: bool = False
    transforms: Chain = field(default_factory=Chain)
    tolerate_errors: bool = _ERRORS.tolerate
    isolate_tables: bool = _TABLES.isolation.isolate
    adopts_from: Sequence[str] = _TABLES.adopts_from
    log_errors: bool = _ERRORS.log
    log_messages: bool = _ERRORS.log_messages
    converters: Mapping[Stage, str] = field(default_factory=dict)

    @property
    def tables_are_shared(self) -> bool:
        """Whether several source tables may share a lake table: the operator has named a key, or rows are appended."""
        return self.tables.history or bool(self.envelope.key_fields) or self.transforms.merges
