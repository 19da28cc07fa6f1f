"""The options of the lakehouse sink, and ``SinkConnectorConfig``, what a task works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.config.converter import SchemasEnabled
from headrace.config.framework import FRAMEWORK_OPTIONS, FrameworkSettings
from headrace.config.kafka import KafkaSettings
from headrace.config.reselect import POST_PROCESSORS, RESELECT_OPTIONS
from headrace.config.sink_options import BatchSettings, SourceSettings, TableSettings
from headrace.config.source_connector import SourceConnectorSettings
from headrace.config.verify_options import VerifySettings
from headrace.core.connect.typed_options import definition, parse_options, section
from headrace.core.reselect.options import ReselectOptions
from headrace.transforms.chain import Chain

SINK_OPTIONS = (
    section("Tables", definition(TableSettings).keys)
    + section("Batching", definition(BatchSettings).keys)
    + section("Source", definition(SourceSettings).keys + definition(SourceConnectorSettings).keys)
    + section("Verification", definition(VerifySettings).keys)
    + POST_PROCESSORS
    + RESELECT_OPTIONS
)
"""The connector's own options."""

CONNECTOR_OPTIONS = FRAMEWORK_OPTIONS + SINK_OPTIONS

LATER = {
    "signal.data.collection": "a later release adds signal tables",
}
"""Keys that a later release adds, with the reason for which they are refused."""


@dataclass(frozen=True, slots=True)
class SinkConnectorConfig:
    """A connector's parsed options (``validation.sink_connector_config``).

    ``group_id`` is its consumer group (``connect.md`` section 5). ``converter_classes`` and ``converters`` are the
    classes and the options of its converters by their place: ``key``, ``value`` and ``header``.
    """

    framework: FrameworkSettings
    tables: TableSettings
    batches: BatchSettings
    source: SourceSettings
    source_connector: SourceConnectorSettings = field(repr=False)
    verify: VerifySettings
    reselect: ReselectOptions
    transforms: Chain
    kafka: KafkaSettings
    group_id: str
    converter_classes: Mapping[str, str]
    converters: Mapping[str, Mapping[str, str]] = field(repr=False)

    @property
    def name(self) -> str:
        return self.framework.name

    @property
    def fills_defaults(self) -> bool:
        """Whether a task that reads of a new column may fill it in.

        It has all topics, under their own names, and rows.
        """
        return self.framework.tasks_max == 1 and not self.framework.transforms and not self.tables.history

    def schemas_enabled(self, side: str) -> bool:
        """Whether documents of ``side`` (``key`` or ``value``) carry their schema."""
        return parse_options(SchemasEnabled, self.converters[side]).enabled
