"""``headrace validate``: validate connector files as a worker does, without a running worker."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headrace.config import WorkerConfig
from headrace.core.connect.config_def import ConfigInfos
from headrace.core.model.errors import HeadraceError, RestError
from headrace.rest.entities import config_infos
from headrace.runtime.worker.config_providers import config_providers
from headrace.runtime.worker.connector_files import read_connector
from headrace.runtime.worker.sink_connector import (
    ConnectorValidator,
    LakehouseSinkConnector,
    check_addressable,
    config_with_name,
)
from headrace.runtime.worker.worker import worker_defaults
from headrace_app import composition

DESCRIPTION = """\
Validates connector files with the rules of PUT /connector-plugins/{class}/config/validate, without a worker, without
Kafka and without a database. Prints every error with its key.
"""
EPILOG = """\
examples:
  headrace validate shop.json
  headrace validate --worker worker.properties connectors/*.json
  headrace validate --json shop.json | jq '.configs[].value | select(.errors != [])'

A file contains the body of POST /connectors ({"name": …, "config": {…}}), a configuration alone, or properties. What a
connector inherits (converters, the worker's group) comes from --worker; without it Kafka Connect's defaults apply.
Exit status: 0 all valid, 1 errors, 2 a file that cannot be read.
Keys of Debezium's JDBC sink and of Apache Iceberg's sink: docs/migration.md.
"""
NO_WORKER = {"bootstrap.servers": "127.0.0.1:9092"}
"""The configuration without a worker file. Nothing connects to these brokers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "connectors", type=Path, nargs="+", metavar="CONNECTOR.json", help="connector files to validate"
    )
    parser.add_argument(
        "--worker", type=Path, metavar="worker.properties", help="worker file of the worker that will run them"
    )
    parser.add_argument("--json", action="store_true", help="print the REST API's answer, one document per file")


def validate(worker: WorkerConfig | None, paths: Sequence[Path], *, as_json: bool) -> int:
    """Validate the files for a worker, if it is known, and return the exit status.

    Never raises for the content of a file.
    """
    config = worker or WorkerConfig(NO_WORKER, distributed=False)
    feeds = composition.feeds(config)
    providers = config_providers(config.provider_properties, config.own_secrets)
    defaults = replace(worker_defaults(config), group_id=config.identity.group_id or None)
    if not config.names_warehouse:
        defaults = replace(defaults, warehouse=None)
    if worker is None:
        defaults = replace(defaults, catalogs=None)
    validator = ConnectorValidator(
        LakehouseSinkConnector(defaults, providers),
        [composition.check_installed, lambda connector: feeds.check(connector.name, connector.kafka)],
    )
    return max(_check(validator, path, as_json) for path in paths)


def _check(validator: ConnectorValidator, path: Path, as_json: bool) -> int:
    try:
        infos = _infos(validator, path)
    except HeadraceError as error:
        print(f"{path}: {str(error).removeprefix(f'{path}: ')}", file=sys.stderr if as_json else sys.stdout)
        return 1 if isinstance(error, RestError) else 2
    print(json.dumps(config_infos(infos)) if as_json else _text(path, infos))
    return 1 if infos.error_count else 0


def _infos(validator: ConnectorValidator, path: Path) -> ConfigInfos:
    name, given, _ = read_connector(path)
    check_addressable(name)
    config = config_with_name(name, given) if name else given
    validator.check_class(config)  # its error for an unknown class is clearer than that of ``validate``
    return validator.validate(config["connector.class"] or "", config)


def _text(path: Path, infos: ConfigInfos) -> str:
    if not infos.error_count:
        return f"{path}: valid"
    options: dict[str, list[str]] = {}  # by message: ``topics`` and ``topics.regex`` may have the same
    for info in infos.configs:
        for error in info.value.errors:
            options.setdefault(error, []).append(info.definition.name)
    lines = [f"{path}: {len(options)} error(s)"]
    for error, names in options.items():
        shown = ", ".join(names)
        lines.append(f"  {shown}: {error.removeprefix(f'{shown}: ')}")
    return "\n".join(lines)
