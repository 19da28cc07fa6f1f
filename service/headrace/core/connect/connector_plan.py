"""Connectors as code: compare connector files with the connectors of a cluster, and plan the difference.

The leader's directory (``connector_directory.py``) and ``headrace apply`` share this plan. The plan never changes or
deletes a connector that its owner did not create or adopt, and deletes none whose file may exist but cannot be read.

The owner of a connector is what created it from a file. The worker stores the owner beside the configuration, not in it
(``docs/decisions/workers.md``). A connector without an owner was created over REST by a user or another tool.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headrace.core.connect.config_def import HIDDEN
from headrace.core.connect.lifecycle import TargetState

DIRECTORY = "connectors.directory"
"""The owner of the connectors that the leader creates from the files of the option ``connectors.directory``."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}")
NAME_RULE = "1 to 200 of the characters A-Z a-z 0-9 . _ : @ -, the first a letter or digit"


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a connector.

    ``source`` is the name of the file that the owner read last. ``digest`` is that of the configuration that the owner
    wrote last, empty if the owner has written none: another digest of the stored configuration is drift.
    """

    owner: str
    source: str = ""
    digest: str = ""

    def document(self) -> dict[str, str]:
        return {"owner": self.owner, "source": self.source, "digest": self.digest}


def ownership(document: Mapping[str, Any]) -> Ownership:
    """Return the ownership in a stored document. Ignores members of later versions. Raises KeyError without owner."""
    return Ownership(str(document["owner"]), str(document.get("source", "")), str(document.get("digest", "")))


def is_owner_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def digest(config: Mapping[str, str]) -> str:
    """Return a digest of a configuration, independent of the order of its keys."""
    text = json.dumps(dict(config), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


Config = Mapping[str, str]


class Action(StrEnum):
    """What a plan does with a connector."""

    DELETE = "delete"
    CREATE = "create"
    UPDATE = "update"
    ADOPT = "adopt"
    """Only the owner record is written; the configuration is already right."""
    UNCHANGED = "unchanged"
    DRIFT = "drift"
    """The configuration was changed over REST, and the policy is to report that only."""
    CONFLICT = "conflict"
    """A connector with this name belongs to somebody else, or several files define it."""
    KEEP = "keep"
    """The connector has no file, and is not deleted for the reason in the step."""


CHANGES = frozenset({Action.DELETE, Action.CREATE, Action.UPDATE, Action.ADOPT})
"""The actions that write."""


@dataclass(frozen=True, slots=True)
class DesiredConnector:
    """A connector as its file ``source`` defines it. ``initial`` counts only if the connector is created."""

    name: str
    config: Config
    source: str
    initial: TargetState | None = None


@dataclass(frozen=True, slots=True)
class StoredConnector:
    """A connector of the cluster."""

    config: Config
    owner: Ownership | None = None


@dataclass(frozen=True, slots=True)
class DesiredConnectors:
    """The content of all files. ``unreadable`` has the files with errors, with the connector's name if it is known."""

    connectors: Sequence[DesiredConnector]
    unreadable: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanPolicy:
    """What a plan may do.

    ``kept_because`` is why owned connectors without a file are not deleted; None deletes them. ``correct_drift``
    replaces configurations that were changed over REST. ``adopt`` changes connectors of other owners as well.
    ``stores_owners`` is False for a cluster that cannot store owners (Kafka Connect).
    """

    kept_because: str | None = None
    correct_drift: bool = True
    adopt: bool = False
    stores_owners: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """The plan for one connector.

    ``keys`` are the options whose values differ. ``drifted`` is whether somebody else has changed the configuration
    since its owner wrote it.
    """

    name: str
    action: Action
    source: str = ""
    keys: tuple[str, ...] = ()
    drifted: bool = False
    reason: str = ""
    desired: DesiredConnector | None = None


def plan(
    owner: str, desired: DesiredConnectors, stored: Mapping[str, StoredConnector], policy: PlanPolicy
) -> list[Step]:
    """Return one step for each connector of the files and for each other one of ``owner``.

    Deletions come first, so that a renamed connector does not run under both names.
    """
    steps = [*_of_files(owner, desired, stored, policy), *_without_file(owner, desired, stored, policy)]
    return sorted(steps, key=lambda step: (step.action is not Action.DELETE, step.name))


def changed_keys(before: Config, after: Config) -> tuple[str, ...]:
    return tuple(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))


def _of_files(
    owner: str, desired: DesiredConnectors, stored: Mapping[str, StoredConnector], policy: PlanPolicy
) -> Iterator[Step]:
    files = Counter(file.name for file in desired.connectors)
    broken = {name: file for file, name in desired.unreadable.items() if name is not None}
    for file in {file.name: file for file in desired.connectors}.values():
        if files[file.name] > 1 or file.name in broken:
            sources = sorted({other.source for other in desired.connectors if other.name == file.name})
            sources += [broken[file.name]] if file.name in broken else []
            reason = f"several files define it: {', '.join(sources)}; keep one of them"
            yield Step(file.name, Action.CONFLICT, file.source, reason=reason)
        elif file.name not in stored:
            yield Step(file.name, Action.CREATE, file.source, desired=file)
        else:
            yield _existing(owner, file, stored[file.name], policy)


def _existing(owner: str, desired: DesiredConnector, stored: StoredConnector, policy: PlanPolicy) -> Step:
    keys = changed_keys(stored.config, desired.config)
    owned = stored.owner is not None and stored.owner.owner == owner
    if not owned and not policy.adopt:
        return _foreign(desired, stored, keys, policy)
    now, wanted = digest(stored.config), digest(desired.config)
    written = stored.owner.digest if stored.owner is not None and owned else ""
    drifted = written not in ("", now)

    def step(action: Action, reason: str = "") -> Step:
        return Step(desired.name, action, desired.source, keys, drifted and bool(keys), reason, desired)

    if keys and drifted and written == wanted and not policy.correct_drift:
        return step(Action.DRIFT, "its configuration was changed over REST")
    if keys:
        return step(Action.UPDATE, "its configuration was changed over REST" if drifted else "")
    recorded = stored.owner == Ownership(owner, desired.source, wanted)
    return step(Action.UNCHANGED if recorded or not policy.stores_owners else Action.ADOPT)


def _foreign(desired: DesiredConnector, stored: StoredConnector, keys: tuple[str, ...], policy: PlanPolicy) -> Step:
    if not policy.stores_owners:
        by = "it exists already, and the cluster stores no owners"
    elif stored.owner is None:
        by = "it was created over REST without an owner"
    else:
        by = f"its owner is {stored.owner.owner}"
    return Step(desired.name, Action.CONFLICT if keys else Action.UNCHANGED, desired.source, keys, reason=by)


def _without_file(
    owner: str, desired: DesiredConnectors, stored: Mapping[str, StoredConnector], policy: PlanPolicy
) -> Iterator[Step]:
    in_files = {file.name for file in desired.connectors}
    owners = {name: connector.owner for name, connector in stored.items()}
    owned = {name: ownership for name, ownership in owners.items() if ownership and ownership.owner == owner}
    sources = {ownership.source: name for name, ownership in owned.items()}
    broken = {name for name in desired.unreadable.values() if name is not None}
    lost = [file for file, name in desired.unreadable.items() if name is None and file not in sources]
    for name, ownership in owned.items():
        if name in in_files:
            continue
        if name in broken or ownership.source in desired.unreadable:
            reason = "its file has an error"
        elif lost:
            reason = f"{', '.join(sorted(lost))} has an error and may define it"
        elif policy.kept_because is not None:
            reason = policy.kept_because
        else:
            yield Step(name, Action.DELETE, ownership.source)
            continue
        yield Step(name, Action.KEEP, ownership.source, reason=reason)


_REFERENCE = re.compile(r"\$\{[^}:]*:[^}]*\}")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_MAX_SHOWN = 500


def diff_lines(before: Mapping[str, str], after: Mapping[str, str], is_hidden: Callable[[str], bool]) -> list[str]:
    """Return two lines for each changed key, one for an added or removed one, sorted by key.

    The value of a hidden key is shown only if it is a reference to a config provider. Credentials in URLs are never
    shown.
    """
    lines = []
    for key in changed_keys(before, after):
        for sign, config in (("-", before), ("+", after)):
            if key in config:
                lines.append(f"{sign} {key} = {_shown(config[key], hidden=is_hidden(key))}")
    return lines


def without_secrets(value: str, *, hidden: bool) -> str:
    """Return what people may see of an option's value; ``hidden`` is whether the value is a secret.

    A reference to a config provider is none. Credentials in URLs are never shown.
    """
    if hidden and not _REFERENCE.fullmatch(value):
        return HIDDEN
    return _CREDENTIALS.sub(f"{HIDDEN}@", value)


def _shown(value: str, *, hidden: bool) -> str:
    text = without_secrets(value, hidden=hidden).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text)} characters)"
