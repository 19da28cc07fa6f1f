"""``headrace apply``: make the connectors of a cluster equal to connector files, over the REST API."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from headrace.config.framework import FRAMEWORK_OPTIONS
from headrace.config.validation import is_secret
from headrace.core.connect.config_def import Type
from headrace.core.connect.connector_plan import (
    CHANGES,
    DIRECTORY,
    NAME_RULE,
    Action,
    Ownership,
    PlanPolicy,
    Step,
    StoredConnector,
    diff_lines,
    digest,
    is_owner_name,
    plan,
)
from headrace.core.connect.lifecycle import TargetState
from headrace.core.model.errors import ConfigError, RestError
from headrace.rest import client
from headrace.rest.client import ConnectClient, Credentials, segment
from headrace.runtime.worker.connector_files import ConnectorFiles, read_files, read_folder

DESCRIPTION = """\
Creates and changes connectors until they equal the files of a folder, over the REST API of any worker. With --prune it
also deletes the connectors whose files are gone. Files: one connector each, as for connect-standalone (.json,
.properties).

The command changes and deletes only the connectors of its set: those that an earlier run with the same set has created
or adopted. The set is the name of the folder, or --set. A connector that somebody else has created is a conflict;
--adopt adds it to the set.
"""
EPILOG = """\
examples:
  headrace apply -f connectors/ --diff                 show what would change; passwords are hidden
  headrace apply -f connectors/ --prune                create, change and delete
  headrace apply -f connectors/shop.json               this file only
  HEADRACE_TOKEN=... headrace apply -f connectors/ --url https://connect.example.com --ca ca.pem

environment: HEADRACE_URL (--url), HEADRACE_USER (--user), HEADRACE_PASSWORD, HEADRACE_TOKEN (bearer token)

Kafka Connect's workers store no owners: there the command creates connectors, changes existing ones only with --adopt,
and refuses --prune. For a folder that the cluster itself follows, see connectors.directory in docs/operations.md.

exit status: 0 all connectors equal their files; 1 a file, a connector or a conflict needs attention, or --diff has
found differences; 2 the command could not work (usage, a worker that does not answer, missing permission), or with
--diff a file or configuration is invalid
"""
EQUAL, DIFFERENT, FAILED = 0, 1, 2
_DONE = {Action.CREATE: "created", Action.UPDATE: "changed", Action.ADOPT: "adopted", Action.DELETE: "deleted"}
_FATAL = (401, 403)


@dataclass(frozen=True, slots=True)
class ApplyArguments:
    """The arguments of the command line. ``owner`` is the name of the set, None for that of the folder."""

    path: Path
    url: str = client.DEFAULT_URL
    owner: str | None = None
    prune: bool = False
    diff: bool = False
    adopt: bool = False
    yes: bool = False
    credentials: Credentials = Credentials()  # noqa: RUF009 - frozen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "-f", "--file", type=Path, required=True, metavar="DIR_OR_FILE", help="folder of connector files, or one file"
    )
    parser.add_argument("--diff", action="store_true", help="only print what would change; exit status 1 if anything")
    parser.add_argument("--prune", action="store_true", help="delete connectors of the set that have no file")
    parser.add_argument(
        "--adopt", action="store_true", help="add connectors with these names to the set, whoever created them"
    )
    parser.add_argument("--set", metavar="NAME", dest="owner", help="name of the set (default: name of the folder)")
    parser.add_argument("--yes", action="store_true", help="delete without a question, also if the folder is empty")
    client.add_arguments(parser)


def arguments(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> ApplyArguments:
    """Return the arguments from the command line and the environment."""
    url, credentials = client.url_of(options, environment), client.credentials_of(options, environment)
    return ApplyArguments(
        options.file, url, options.owner, options.prune, options.diff, options.adopt, options.yes, credentials
    )


def confirmed(question: str) -> bool:
    """Ask on a terminal; without one the answer is yes."""
    if not sys.stdin.isatty():
        return True
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def apply(
    given: ApplyArguments,
    out: TextIO | None = None,
    err: TextIO | None = None,
    confirm: Callable[[str], bool] = confirmed,
) -> int:
    """Apply the files, or print the differences. Return the exit status. Raises ConfigError and RestError."""
    out, err = out or sys.stdout, err or sys.stderr
    owner, files = _set_of(given), _read(given)
    if files.empty and not (given.prune and given.yes):
        allowed = "; --yes deletes all connectors of the set" if given.prune else ""
        raise ConfigError(
            f"{given.path}: contains no connector files (.json, .properties); nothing is changed{allowed}"
        )
    worker = ConnectClient(given.url, given.credentials)
    stored, stores_owners = _stored(worker)
    if given.prune and not stores_owners:
        raise ConfigError(f"{given.url}: --prune is not possible: this worker (Kafka Connect) stores no owners")
    policy = PlanPolicy(
        None if given.prune else "no file; --prune deletes it", adopt=given.adopt, stores_owners=stores_owners
    )
    if given.path.is_file():  # the other files of the set are not read, so nothing is known of their connectors
        names = {file.name for file in files.connectors}
        stored = {name: connector for name, connector in stored.items() if name in names}
    steps = plan(owner, files.desired_connectors(), stored, policy)
    for file, problem in files.problems.items():
        print(f"{file}: {problem.message}", file=err)
    run = _Run(worker, owner, stored, stores_owners, out, err)
    if given.diff:
        return max(run.diff(steps), FAILED if files.problems else EQUAL)
    deleted = [step.name for step in steps if step.action is Action.DELETE]
    if deleted and not given.yes and not confirm(f"Delete {', '.join(deleted)}?"):
        raise ConfigError("nothing is changed; run the command without --prune to keep these connectors")
    return max(run.apply(steps), DIFFERENT if files.problems else EQUAL)


class _Run:
    """Carries out or prints the steps of a plan."""

    def __init__(
        self,
        worker: ConnectClient,
        owner: str,
        stored: Mapping[str, StoredConnector],
        stores_owners: bool,
        out: TextIO,
        err: TextIO,
    ) -> None:
        self._client = worker
        self._owner = owner
        self._stored = stored
        self._stores_owners = stores_owners
        self._out = out
        self._err = err

    def apply(self, steps: list[Step]) -> int:
        """Carry out the steps, one line for each. Creations wait for deletions, as in ``connector_directory.py``."""
        status, undeleted = EQUAL, ""
        for step in steps:
            if step.action is Action.CREATE and undeleted:
                status = DIFFERENT
                print(f"{step.name} not created: {undeleted} is not deleted", file=self._err)
                continue
            try:
                line = self._step(step)
            except RestError as error:
                if error.status in _FATAL:
                    raise
                status = DIFFERENT
                undeleted = step.name if step.action is Action.DELETE else undeleted
                print(f"{step.name} failed ({step.source}): {error}", file=self._err)
                continue
            if step.action is Action.CONFLICT:
                status = DIFFERENT
            print(line, file=self._err if step.action is Action.CONFLICT else self._out)
        return status

    def diff(self, steps: list[Step]) -> int:
        """Print the differences. Return DIFFERENT if there are any, FAILED if a configuration is invalid."""
        status = EQUAL
        for step in steps:
            if step.action is Action.CONFLICT:
                print(_conflict(step), file=self._err)
                status = max(status, DIFFERENT)
            elif step.action in CHANGES and (step.action is not Action.ADOPT or self._stores_owners):
                status = max(status, DIFFERENT, self._print_diff(step))
        return status

    def _step(self, step: Step) -> str:
        if step.action is Action.CONFLICT:
            return _conflict(step)
        if step.action not in CHANGES:
            return f"{step.name} {'unchanged' if step.action is Action.UNCHANGED else 'kept'}{_reason(step)}"
        path, query = f"/connectors/{segment(step.name)}", {"owner": self._owner, "source": step.source}
        if step.desired is None:
            self._client.request("DELETE", path, {"owner": self._owner})
        elif step.action is Action.CREATE:
            body: dict[str, Any] = {"name": step.name, "config": dict(step.desired.config)}
            if step.desired.initial not in (None, TargetState.STARTED):  # Kafka Connect knows it since 3.7
                body["initial_state"] = step.desired.initial
            self._client.request("POST", "/connectors", query, body)
        else:
            owner = self._stored[step.name].owner
            if self._stores_owners and (owner is None or owner.owner != self._owner):
                self._client.request("PUT", f"{path}/owner", None, {"owner": self._owner})
            self._client.request("PUT", f"{path}/config", query, dict(step.desired.config))
        keys = f" ({', '.join(step.keys)})" if step.action is Action.UPDATE else ""
        return f"{step.name} {_DONE[step.action]}{keys}{_reason(step)}"

    def _print_diff(self, step: Step) -> int:
        title = {Action.CREATE: "create", Action.DELETE: "delete", Action.ADOPT: "adopt"}.get(step.action, "change")
        print(f"{step.name}: {title} ({step.source or 'no file'}){_reason(step)}", file=self._out)
        if step.desired is None:
            return EQUAL
        before = self._stored[step.name].config if step.name in self._stored else {}
        hidden, errors = self._validated(step.desired.config)
        removed = {key: value for key, value in before.items() if key not in step.desired.config}
        if removed:
            hidden |= self._validated(before)[0]
        for line in diff_lines(before, step.desired.config, lambda key: key in hidden or is_secret(key)):
            print(f"  {line}", file=self._out)
        for error in errors:
            print(f"  ! {error}", file=self._err)
        return FAILED if errors else EQUAL

    def _validated(self, config: Mapping[str, str]) -> tuple[set[str], list[str]]:
        """Return the keys of passwords by the connector's definitions, and the errors of a configuration.

        If the worker cannot validate the configuration, all options but those of the framework count as passwords.
        """
        name = config.get("connector.class", "").rpartition(".")[2] or "none"
        try:
            infos = self._client.request(
                "PUT", f"/connector-plugins/{segment(name)}/config/validate", None, dict(config)
            )
            entries = [(info["definition"], info["value"]) for info in infos["configs"]]
        except RestError as error:
            if error.status in _FATAL:
                raise
            return {key for key in config if key not in FRAMEWORK_OPTIONS}, [str(error)]
        passwords = {definition["name"] for definition, _ in entries if definition["type"] == Type.PASSWORD}
        return passwords, [f"{value['name']}: {error}" for _, value in entries for error in value["errors"]]


def _set_of(given: ApplyArguments) -> str:
    folder = given.path if given.path.is_dir() else given.path.parent
    owner = given.owner or folder.resolve().name
    if not is_owner_name(owner) or owner == DIRECTORY:
        raise ConfigError(f"--set: {owner!r} cannot be the name of a set; choose another one: {NAME_RULE}")
    return owner


def _read(given: ApplyArguments) -> ConnectorFiles:
    if given.path.is_dir():
        return read_folder(given.path)
    if not given.path.exists():
        raise ConfigError(f"{given.path}: does not exist; -f takes a folder of connector files, or one file")
    if given.prune:
        raise ConfigError(f"{given.path}: --prune needs a folder: one file does not say which connectors have no file")
    return read_files([given.path])


def _stored(worker: ConnectClient) -> tuple[dict[str, StoredConnector], bool]:
    """Return the connectors, and whether the cluster stores owners."""
    answer = worker.get("/connectors", {"expand": ["info", "owner"]})
    try:
        configs = {name: entry["info"]["config"] for name, entry in answer.items()}
        stored = {name: StoredConnector(configs[name], _owner(entry, configs[name])) for name, entry in answer.items()}
        return stored, all("owner" in entry for entry in answer.values())
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError("--url: the answer is not that of a Kafka Connect worker; set it to a worker") from error


def _owner(entry: Mapping[str, Any], config: Mapping[str, str]) -> Ownership | None:
    """Return the owner. Its digest is that of ``config`` if the owner has written this configuration last."""
    owner = entry.get("owner") or {}
    if not owner.get("owner"):
        return None
    written = {"True": "another configuration", "False": digest(config)}
    return Ownership(owner["owner"], owner.get("source") or "", written.get(str(owner.get("drifted")), ""))


def _reason(step: Step) -> str:
    return f": {step.reason}" if step.reason else ""


def _conflict(step: Step) -> str:
    advice = f"; its options {', '.join(step.keys)} differ; --adopt adds it to the set" if step.keys else ""
    return f"{step.name} conflict ({step.source}): {step.reason}{advice}"
