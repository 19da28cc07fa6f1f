"""The ``headrace`` command: parse the command line, read the worker's configuration, and run a worker or a command.

Tests: ``tests/unit/test_service.py``, ``tests/unit/app/test_composition.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace import __version__
from headrace.config import WorkerConfig
from headrace.config.values import own_secrets
from headrace.config.worker import log_format as worker_log_format
from headrace.config.worker import select_known
from headrace.config.worker_options import LogSettings
from headrace.core.connect.properties import parse_properties, properties_from_environment
from headrace.core.model.errors import ConfigError, HeadraceError
from headrace.rest.worker_resources import KAFKA_VERSION
from headrace.runtime.worker import log_format
from headrace.runtime.worker.config_providers import worker_providers
from headrace.service import exit_after
from headrace_app import apply, composition, doctor, replay_dlq, resnapshot, status, validate, verify
from headrace_app.interpreter import tune_interpreter

log = logging.getLogger("headrace")

_DESCRIPTION = """\
Headrace reads the change topics that Debezium writes to Kafka, and keeps one lakehouse table per topic equal to its
source table. It serves Kafka Connect's REST API and reads Kafka Connect's worker files.
"""
_EPILOG = """\
an example of worker.properties:
  bootstrap.servers=127.0.0.1:9092
  group.id=headrace
  config.storage.topic=headrace-configs
  status.storage.topic=headrace-status
  config.storage.replication.factor=1
  status.storage.replication.factor=1
  listeners=http://127.0.0.1:8083
  warehouse=/var/lib/headrace/warehouse

with the worker running:
  curl -X POST -H 'Content-Type: application/json' http://127.0.0.1:8083/connectors -d '
    {"name": "shop", "config": {"connector.class": "LakehouseSink", "topics.regex": "shop\\\\..*"}}'
  headrace status

Every key may also come from the environment: CONNECT_BOOTSTRAP_SERVERS is bootstrap.servers; the environment wins.
All options: docs/configuration.md.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until a signal stops it, or one of the commands for operators. Return the exit status.

    The status of a worker is 0, or 1 with the reason in the log.
    """
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level, stream=sys.stderr)
    log_format.use(LogSettings().format)
    for noisy in ("aiokafka", "faust", "mode", "py4j", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return _serve(options) if options.mode.startswith("connect-") else _run_command(options)


def _run_command(options: argparse.Namespace) -> int:
    """Return what the command returns: 0, 1 for what it reports, or 2 if it could not do its work."""
    try:
        if options.mode == "apply":
            return apply.apply(apply.arguments(options))
        if options.mode == "status":
            return status.status(status.arguments(options))
        if options.mode == "validate":  # also without a worker file
            defaults = worker_config(options.worker, distributed=False) if options.worker else None
            return validate.validate(defaults, options.connectors, as_json=options.json)
        worker = worker_config(options.worker, distributed=False)
        if options.mode == "replay-dlq":
            return replay_dlq.replay_dlq(worker, options.connector, dry_run=options.dry_run, old=options.old)
        if options.mode == "resnapshot":
            return resnapshot.resnapshot(worker, resnapshot.arguments(options))
        if options.mode == "doctor":
            return doctor.doctor(
                worker, options.connector, debezium=options.debezium, try_lake=not options.no_lake, as_json=options.json
            )
        arguments = verify.VerifyArguments(
            options.connector, options.table, options.repair, options.show_values, options.wait
        )
        return verify.verify(worker, arguments)
    except HeadraceError as error:
        print(f"headrace {options.mode}: {error}", file=sys.stderr)
        return 2


def _serve(options: argparse.Namespace) -> int:
    try:
        config = worker_config(options.worker, distributed=options.mode == "connect-distributed")
        connectors = getattr(options, "connectors", [])
        tune_interpreter()
        asyncio.run(composition.worker(config).run(connectors))
    except HeadraceError as error:
        log.error("%s", error)
        return 1
    finally:
        exit_after(seconds=10, status=1)  # a thread that hangs must not keep the process alive
    return 0


def worker_config(path: Path, *, distributed: bool) -> WorkerConfig:
    """Return the worker's configuration from its file and the environment. Raises ConfigError."""
    try:
        properties = parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as a worker's configuration: {error}") from error
    from_environment, unknown = select_known(properties_from_environment(os.environ))
    given = {**properties, **from_environment}
    log_format.use(worker_log_format(given))  # before the first log line
    for name in unknown:
        log.debug("Environment: the CONNECT_ variable for %s is ignored: it is not an option", name)
    resolved = worker_providers(given).properties(given)
    config = WorkerConfig(resolved, distributed=distributed, own_secrets=own_secrets(path, given))
    for name, reason in config.ignored.items():
        log.warning("%s: has no effect: %s", name, reason)
    return config


_COMMANDS = (
    ("doctor", doctor, True, "check a connector's topics, source database and lake, and print what will go wrong"),
    ("verify", verify, True, "compare source tables with lake tables while both change, and repair differences"),
    ("resnapshot", resnapshot, True, "fill one lake table again from its source, beside the others, and compare it"),
    ("validate", validate, False, "validate connector files as the REST API does, without a worker and without Kafka"),
    ("apply", apply, False, "create, change and delete connectors until they equal connector files, over the REST API"),
    ("status", status, False, "print the tables of all connectors, failed ones first, over the REST API"),
    ("replay-dlq", replay_dlq, True, "apply the dead letters of a connector again"),
)
"""Commands beside the workers: name, module, whether it reads a worker file, and what it does."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "headrace", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--version", action="version", version=f"headrace {__version__} (Kafka Connect's API {KAFKA_VERSION})"
    )
    modes = parser.add_subparsers(dest="mode", required=True, metavar="MODE")
    distributed = modes.add_parser(
        "connect-distributed",
        help="run a worker that keeps configurations and states in Kafka topics; create connectors over REST",
    )
    standalone = modes.add_parser(
        "connect-standalone",
        help="run a worker that keeps configurations and states in memory; connectors come from files",
    )
    for worker in (distributed, standalone):
        _add_worker_file(worker, "INFO")
    for name, command, of_worker, summary in _COMMANDS:
        parser_of_command = modes.add_parser(
            name,
            help=summary,
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if of_worker:
            _add_worker_file(parser_of_command, "ERROR")
        command.add_arguments(parser_of_command)
        parser_of_command.set_defaults(log_level="ERROR")
    standalone.add_argument(
        "connectors",
        type=Path,
        nargs="+",
        metavar="connector.json",
        help='a connector: {"name": …, "config": {…}}, or a configuration that contains the name',
    )
    return parser


def _add_worker_file(parser: argparse.ArgumentParser, level: str) -> None:
    parser.add_argument("worker", type=Path, metavar="worker.properties", help="a Kafka Connect worker file")
    parser.add_argument("--log-level", default=level, choices=["DEBUG", "INFO", "WARNING", "ERROR"])
