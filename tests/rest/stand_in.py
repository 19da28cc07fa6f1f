"""Stands in for Kafka Connect's FileStreamSink, the connector of the recorded requests, and for its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headrace.config import SinkConnectorConfig, validation
from headrace.config.converter import JSON_CONVERTER
from headrace.config.validation import Properties, WorkerDefaults, connector_definitions
from headrace.core.config_def import ConfigDef, ConfigInfos, ConfigKey, Importance, Type

_STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"


class FileStreamSinkConnector:
    """Takes any key, as Connect does, and the string converter."""

    class_name = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    task_class = "org.apache.kafka.connect.file.FileStreamSinkTask"
    type = "sink"
    version = "4.3.1"

    def definitions(self, defaults: WorkerDefaults) -> ConfigDef:
        """Its one option and the framework's."""
        file = ConfigKey("file", Type.STRING, None, Importance.HIGH, "Where to write.")
        return ConfigDef((file,)) + connector_definitions(defaults)

    def validate(self, properties: Properties, defaults: WorkerDefaults) -> ConfigInfos:
        """Headrace's checks, without those that know better than Connect."""
        infos = validation.validate(_lenient(properties), replace(defaults, version=self.version))
        configs = [info for info in infos.configs if not info.value.errors or not _unknown(info.value.errors)]
        return replace(infos, configs=tuple(configs))

    def config(self, properties: Mapping[str, str], defaults: WorkerDefaults) -> SinkConnectorConfig:
        """The typed form."""
        return validation.sink_connector_config(properties, defaults)


def _lenient(properties: Properties) -> dict[str, str | None]:
    return {name: JSON_CONVERTER if value == _STRING_CONVERTER else value for name, value in properties.items()}


def _unknown(errors: tuple[str, ...]) -> bool:
    return errors[0].startswith("Unknown configuration")


class StandInTask:
    """A task that does nothing and lets a test make it fail."""

    def __init__(self, connector: str, number: int, fail: Callable[[BaseException], None]) -> None:
        self.name = f"{connector}-{number}"
        self.fail = fail
        self.calls: list[str] = []

    async def start(self) -> None:
        """Started."""
        self.calls.append("start")

    async def stop(self) -> None:
        """Stopped."""
        self.calls.append("stop")

    async def pause(self) -> None:
        """Paused."""
        self.calls.append("pause")

    async def resume(self) -> None:
        """Resumed."""
        self.calls.append("resume")


class StandInTasks:
    """A task factory that remembers the newest task of each number and its options, and whether starts shall fail."""

    def __init__(self) -> None:
        self.tasks: dict[str, StandInTask] = {}
        self.configs: dict[str, SinkConnectorConfig] = {}
        self.refusal: BaseException | None = None
        self.made = 0

    async def __call__(
        self, connector: str, number: int, config: SinkConnectorConfig, on_failure: Callable[[BaseException], None]
    ) -> StandInTask:
        """Make a task, or raise what a test asked for."""
        self.made += 1
        if self.refusal is not None:
            raise self.refusal
        task = StandInTask(connector, number, on_failure)
        self.tasks[task.name] = task
        self.configs[task.name] = config
        return task
