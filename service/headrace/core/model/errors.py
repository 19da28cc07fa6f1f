"""Errors by remedy, and the table of remedies.

    HeadraceError
    ├── ConfigError        the operator must change an option; raised before anything starts
    ├── BadRecord          this record cannot be used; tolerated, dead-lettered or fatal, see ``errors.tolerance``
    ├── Retriable          retry with back-off; nothing was lost or partially done
    │   ├── TimedOut       the system did not answer in time
    │   ├── EngineFailed   what writes all tables has ended and is started again: Spark's JVM
    │   │   └── EngineOutOfMemory   a smaller batch may fit
    │   ├── DamagedFile    a file of a table cannot be read; if that lasts, it becomes TableDamaged
    │   └── Fenced         another member owns the partition: drop the batch, the owner reads its records again
    ├── RestError          a REST request cannot be served; it contains its HTTP status
    └── Fatal              the table or task fails and waits for an operator; the message contains the remedy
        ├── TableMissing   a table that the connector has written, or its ledger, does not exist any more
        └── TableDamaged   a file of a table stayed damaged or missing over several attempts

Connectors translate the errors of libraries to one of these with ``raise … from error``. No message contains the value
of a cell: it names the topic, partition, offset and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class HeadraceError(Exception):
    """The base class of Headrace's errors."""


class ConfigError(HeadraceError):
    """An option is missing, unknown or invalid. ``key`` is its name."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class BadRecord(HeadraceError):
    """A record cannot be decoded or applied.

    ``index`` is its index among the records that were decoded together, and ``also`` are those of others with the same
    fault. ``class_name`` is the class that failed, if the stage does not determine it, as for transforms.
    """

    def __init__(
        self,
        message: str,
        *,
        index: int | None = None,
        also: Sequence[int] = (),
        stage: Stage | None = None,
        class_name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.index = index
        self.also = also
        self.stage = stage
        self.class_name = class_name

    @property
    def culprit(self) -> int:
        """``index``. Raises Fatal if it is None, because a guess would reject another record than the bad one."""
        if self.index is None:
            raise Fatal(f"bad record without an index: {self}; this is a defect of Headrace, report it") from self
        return self.index


class Retriable(HeadraceError):
    """A system has failed temporarily: call again with the same arguments."""


class TimedOut(Retriable):
    """A system did not answer in time."""


class EngineFailed(Retriable):
    """What writes all tables has ended and is started again. Tables that were open must be opened again."""


class EngineOutOfMemory(EngineFailed):
    """It has ended because its memory was not enough for what it did: a smaller batch may fit."""


class DamagedFile(Retriable):
    """A file that a table consists of is damaged, or does not exist. ``file`` is its path or URL, None if unknown.

    The storage may cause that for a moment. If it lasts over several attempts, the table fails with TableDamaged.
    """

    def __init__(self, message: str, file: str | None = None) -> None:
        super().__init__(message)
        self.file = file


class Fenced(Retriable):
    """A commit was rejected because another member owns the partition: drop the batch."""


class RestError(HeadraceError):
    """A request is rejected, with Kafka Connect's status and message (``connect.md`` section 1.2)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Fatal(HeadraceError):
    """Continuing would risk wrong data, or is impossible. The task fails; the message contains the remedy."""


class TableMissing(Fatal):
    """A table that was written before, or its ledger, does not exist any more. It must not count as empty."""


class TableDamaged(Fatal):
    """A file that a table consists of stayed damaged or missing: an operator has to restore it or replace the table."""


class Stage(StrEnum):
    """The stage of a record at which an error happened (Kafka Connect's ``Stage``)."""

    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    TRANSFORMATION = "TRANSFORMATION"
    TASK_PUT = "TASK_PUT"
    KAFKA_CONSUME = "KAFKA_CONSUME"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"


@dataclass(frozen=True, slots=True)
class Remedy:
    """How the runtime handles an error of one class."""

    retry: bool
    tolerable: bool
    http_status: int
    hint: str


POLICY: dict[type[HeadraceError], Remedy] = {
    ConfigError: Remedy(False, False, 400, "correct the named option and send the configuration again"),
    BadRecord: Remedy(
        False, True, 500, "fix the record at its source, or set errors.tolerance=all with a dead letter queue"
    ),
    Fenced: Remedy(True, False, 409, "nothing to do: the partition's new owner reads the records again"),
    Retriable: Remedy(True, False, 503, "nothing to do while it is retried; check the system that the message names"),
    DamagedFile: Remedy(True, False, 503, "nothing to do while it is retried; if it lasts, it becomes TableDamaged"),
    RestError: Remedy(False, False, 500, "correct the request as the message describes"),
    TableDamaged: Remedy(
        False,
        False,
        500,
        "restore the file that the message names, roll the table back or fill it anew ([runbook](runbooks.md"
        "#a-file-of-a-table-is-damaged)), then restart the table",
    ),
    Fatal: Remedy(False, False, 500, "follow the message, then restart the task"),
}


def remedy(error: BaseException) -> Remedy:
    """Return the policy for ``error``: that of its nearest class in POLICY; unknown errors count as Fatal."""
    for kind in type(error).__mro__:
        if kind in POLICY:
            return POLICY[kind]
    return POLICY[Fatal]
