"""What the configuration of a connector says to its tasks.

Tests: ``tests/unit/runtime/task/test_task_factory.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.config import SinkConnectorConfig
from headrace.config.framework import ErrorSettings
from headrace.config.sink_options import TableSettings
from headrace.core.batch.batch import BatchPolicy
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.flattened import MetadataNames
from headrace.core.model.errors import Stage
from headrace.core.model.unavailable import Placeholder
from headrace.core.tables.field_selection import FieldSelection
from headrace.core.tables.naming import TableNaming
from headrace.core.tables.table_layout import Maintenance
from headrace.ports import TableOptions
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.task.conversions import converter_classes
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


def sink_task_options(config: SinkConnectorConfig) -> SinkTaskOptions:
    """What a task works with, from the parsed configuration."""
    framework, tables, reselect = config.framework, config.tables, config.reselect
    return SinkTaskOptions(
        connector=config.name,
        group=config.group_id,
        namespace=tables.namespace,
        naming=tables.naming,
        envelope=_envelope_options(config),
        batches=config.batches.policy,
        fields=tables.fields,
        tables=table_options(tables),
        pipeline=PipelineOptions(
            unresolved_insert_mode=reselect.unresolved_insert_mode,
            unknown_null_mode=reselect.unknown_null_mode,
            evolve=tables.evolve,
            position_regression=config.source.position_regression,
            tombstone_retention=tables.tombstone_retention,
            shared=bool(tables.key_fields),
        ),
        fills_defaults=config.fills_defaults,
        dead_letters_unresolved=reselect.dead_letters,
        transforms=config.transforms,
        tolerate_errors=framework.errors.tolerate,
        isolate_tables=tables.isolation.isolate,
        adopts_from=tables.adopts_from,
        log_errors=framework.errors.log,
        log_messages=framework.errors.log_messages,
        converters=converter_classes(config),
    )


def table_options(tables: TableSettings) -> TableOptions:
    """What the connector says about its tables."""
    return TableOptions(
        tables.format,
        tables.catalog,
        tables.format_version,
        tables.properties,
        tables.layout,
        tables.adopt,
        history=tables.history,
        soft_delete=tables.soft_delete,
        recreate=tables.recreate,
        maintenance=Maintenance(tables.maintenance),
        maintenance_bytes=tables.maintenance_bytes,
    )


def _envelope_options(config: SinkConnectorConfig) -> EnvelopeOptions:
    source, tables = config.source, config.tables
    by = source.ordering
    return EnvelopeOptions(
        key_schemas=config.schemas_enabled("key"),
        value_schemas=config.schemas_enabled("value"),
        placeholder=Placeholder(source.placeholder),
        modes=source.modes,
        position_epoch=source.position_epoch,
        key_fields=tables.key_fields,
        added=_metadata_names(config, by.field if by is not None and by.of_source else None),
        keyless=tables.history,
        ordering=by,
        tables_apart=tables.naming.by_source,
    )


def _metadata_names(config: SinkConnectorConfig, ordering: str | None) -> MetadataNames:
    """What flattened records call their metadata: as the source says, or as the connector's own transform does."""
    prefixes = config.transforms.prefixes
    fields, headers = prefixes or (config.source.fields_prefix, config.source.headers_prefix)
    return MetadataNames(fields, headers, ordering)
