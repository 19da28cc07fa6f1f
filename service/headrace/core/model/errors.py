"""Errors, sorted by what to do about them, and the one table that says so.

    HeadraceError
    ├── ConfigError        the operator must change a setting; refused before anything starts
    ├── BadRecord          this record cannot be used; tolerated, dead-lettered or fatal by ``errors.tolerance``
    ├── Retriable          try again with back-off; nothing was lost and nothing is half done
    │   ├── TimedOut       it did not answer in time
    │   └── Fenced         the partition belongs to somebody else now: drop the batch, its records come again there
    ├── RestError          a REST request cannot be served as sent; it carries its own HTTP status
    └── Fatal              the task stops and waits for an operator; the message says what to do
        ├── EngineFailed   what writes all tables has failed: Spark's JVM
        └── TableMissing   a table that the connector has written, or its ledger, is not there any more

Edges translate their vendor's errors into one of these with ``raise … from error``. No message ever carries a cell's
value: it names the topic, partition, offset and column.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HeadraceError(Exception):
    """Base of every error that Headrace raises on purpose."""


class ConfigError(HeadraceError):
    """A setting is missing, unknown or wrong. ``key`` names the option."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class BadRecord(HeadraceError):
    """A record that cannot be decoded or applied. ``index`` is its place in the run of records that was decoded.

    Where a run is decoded at once the index says which record is bad (``culprit``); never guess it.

    ``class_name`` is the class that could not use it, where the stage alone does not say that: a transform's.
    """

    def __init__(
        self,
        message: str,
        *,
        index: int | None = None,
        stage: Stage | None = None,
        class_name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.index = index
        self.stage = stage
        self.class_name = class_name

    @property
    def culprit(self) -> int:
        """``index``. Raises Fatal where nobody has set it: another record than the bad one would be refused."""
        if self.index is None:
            raise Fatal(f"a bad record that nobody has located: {self}; this is a defect, please report it") from self
        return self.index


class Retriable(HeadraceError):
    """The outside world failed in a way that passes: call again with the same arguments."""


class TimedOut(Retriable):
    """The outside world did not answer in time; nothing else is known to be wrong."""


class Fenced(Retriable):
    """A commit was refused because the partition was given to another member: drop the batch."""


class RestError(HeadraceError):
    """A request that is refused on purpose, with Kafka Connect's status and text (``connect.md`` section 1.2)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Fatal(HeadraceError):
    """Going on would risk wrong data, or cannot work. The task fails; the message names the next step."""


class EngineFailed(Fatal):
    """What writes all tables has failed, not one of them."""


class TableMissing(Fatal):
    """A table that was written before, or its ledger, does not exist any more: it must not count as empty."""


class Stage(StrEnum):
    """Where in the pipeline of a record an error happened (Kafka Connect's ``Stage``)."""

    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    TRANSFORMATION = "TRANSFORMATION"
    TASK_PUT = "TASK_PUT"
    KAFKA_CONSUME = "KAFKA_CONSUME"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What the runtime does with an error of one kind."""

    retry: bool
    tolerable: bool
    http_status: int
    hint: str


POLICY: dict[type[HeadraceError], Remedy] = {
    ConfigError: Remedy(False, False, 400, "correct the named option and send the configuration again"),
    BadRecord: Remedy(
        False, True, 500, "correct the record at its source, or set errors.tolerance=all with a dead letter queue"
    ),
    Fenced: Remedy(True, False, 409, "nothing: the partition's new owner reads the records again"),
    Retriable: Remedy(True, False, 503, "nothing while it is retried; check the system that the message names"),
    RestError: Remedy(False, False, 500, "correct the request; the message names the cause"),
    Fatal: Remedy(False, False, 500, "follow the message, then restart the task"),
}


def remedy(error: BaseException) -> Remedy:
    """The policy for ``error``: that of its nearest class in POLICY; anything unknown is treated as Fatal."""
    for kind in type(error).__mro__:
        if kind in POLICY:
            return POLICY[kind]
    return POLICY[Fatal]
