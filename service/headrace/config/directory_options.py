"""The worker's options for connectors as code: a folder whose files define connectors."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.connect.config_def import Importance, Type, any_case, at_least
from headrace.core.connect.typed_options import option, seconds

_LOW = Importance.LOW


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """The folder, and what the leader may do with its connectors. ``poll_interval`` is in seconds."""

    folder: str | None = option(
        "connectors.directory",
        Type.STRING,
        None,
        "Folder with one file per connector (.json or .properties), such as a mounted ConfigMap or Secret. The leader "
        "creates, changes and deletes the connectors that the files define, and no others. Set the same folder on all "
        "workers, because any of them may become the leader.",
        read=lambda text: text.strip() or None,
    )
    poll_interval: float = option(
        "connectors.directory.poll.interval.ms",
        Type.LONG,
        5000,
        "Interval at which the leader reads connectors.directory and compares it with the connectors.",
        _LOW,
        at_least(100),
        read=seconds,
    )
    correct_drift: bool = option(
        "connectors.directory.drift",
        Type.STRING,
        "correct",
        "What happens to a connector of connectors.directory whose configuration was changed over REST: correct writes "
        "the configuration of its file again, report only reports the difference (GET /connectors-directory) until the "
        "file changes. Pausing, stopping and offsets are no difference.",
        _LOW,
        any_case("correct", "report"),
        read=lambda word: word.lower() == "correct",
    )
    delete_all: bool = option(
        "connectors.directory.empty",
        Type.STRING,
        "keep",
        "What happens if connectors.directory has no connector file at all: keep keeps its connectors, because a "
        "volume may not be mounted yet; delete deletes them. If the folder does not exist, nothing is deleted.",
        _LOW,
        any_case("keep", "delete"),
        read=lambda word: word.lower() == "delete",
    )
    dry_run: bool = option(
        "connectors.directory.dry.run",
        Type.BOOLEAN,
        False,
        "Whether the leader only reports what it would change (log, GET /connectors-directory), and writes nothing.",
        _LOW,
    )
