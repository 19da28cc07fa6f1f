"""What goes wrong with a source in PostgreSQL: its log, its replication slots, and the tables of a connector.

Tests: ``tests/integration/test_doctor_postgres.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.core.doctor.findings import Finding, Severity
from headrace.core.model.events import TableId
from headrace_connectors.sql.query import quoted

MUCH_LOG = 2**30
"""Bytes of the log that an active slot may retain: more than the changes of a few minutes."""

_MIB = 2**20


class Rule(StrEnum):
    """The kinds of findings; ``docs/operations.md`` lists them."""

    SOURCE_WAL_LEVEL = "source-wal-level"
    SOURCE_SLOT_LOST = "source-slot-lost"
    SOURCE_SLOT_INACTIVE = "source-slot-inactive"
    SOURCE_SLOT_BEHIND = "source-slot-behind"
    TABLE_MISSING = "table-missing"
    TABLE_UNPUBLISHED = "table-unpublished"
    TABLE_WITHOUT_IDENTITY = "table-without-identity"
    TABLE_WITHOUT_KEY = "table-without-key"
    TABLE_IDENTITY_INDEX = "table-identity-index"
    TABLE_UNREADABLE = "table-unreadable"
    TABLE_COLUMN_ABSENT = "table-column-absent"
    TABLE_VALUES_OMITTED = "table-values-omitted"
    TABLE_INTERVALS = "table-intervals-approximated"
    SOURCE_STANDBY_BEHIND = "source-standby-behind"


@dataclass(frozen=True, slots=True)
class Slot:
    """A logical replication slot of the database (``pg_replication_slots``).

    ``retained`` are the bytes of the log that it keeps. ``wal_status`` is None before PostgreSQL 13.
    """

    name: str
    plugin: str
    active: bool
    retained: int
    wal_status: str | None


@dataclass(frozen=True, slots=True)
class SurveyedTable:
    """A table of the connector's topics; ``exists`` is False if the database has none of this name.

    ``identity`` is ``pg_class.relreplident`` (d default, n nothing, f full, i index), ``has_key`` whether there is a
    primary key. ``published`` is whether a publication has it, None if the plug-in of the slots ignores publications.
    ``readable`` is whether the user may select all of its rows. Of a readable table, ``absent`` are the columns that no
    event contains, ``omitted`` those whose unchanged values updates may omit and nothing reads again, and ``intervals``
    those that events contain as a number of microseconds.
    """

    table: TableId
    exists: bool
    identity: str = "d"
    has_key: bool = True
    published: bool | None = None
    readable: bool = True
    absent: Sequence[str] = ()
    omitted: Sequence[str] = ()
    intervals: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"{self.table.schema}.{self.table.table}"


@dataclass(frozen=True, slots=True)
class Standby:
    """A standby that reselect reads: the age in seconds of what it has replayed last, and whether it gets the log."""

    where: str
    behind: float
    receives: bool


@dataclass(frozen=True, slots=True)
class PostgresSurvey:
    """What was read of one database. ``where`` names it, ``user`` is who has read it.

    ``slot_limit`` is ``max_slot_wal_keep_size`` in bytes, None without a limit. A standby has no slots of its primary,
    and another ``wal_level``, so that nothing is reported of them.
    """

    where: str
    user: str
    wal_level: str
    slot_limit: int | None
    slots: Sequence[Slot]
    publications: Sequence[str]
    tables: Sequence[SurveyedTable]
    on_standby: bool = False


def standby_findings(standby: Standby, patience: float) -> Iterator[Finding]:
    """Yield the findings of a standby. ``patience`` is how long reselect waits for it, in seconds."""
    if standby.receives and standby.behind <= patience:
        return
    yield Finding(
        Rule.SOURCE_STANDBY_BEHIND,
        Severity.WARNING,
        f"{standby.where}, standby",
        f"each read of omitted values waits up to {patience:g} s for this standby, then queries the primary if it is "
        "listed; otherwise tables are as far behind as the standby",
        f"it has replayed nothing for {standby.behind:.0f} s, and is not at the end of the log"
        if standby.receives
        else "it receives no log from its primary",
        "SELECT * FROM pg_stat_wal_receiver;  -- on the standby; or reselect.read.from=primary",
    )


def findings(survey: PostgresSurvey) -> Iterator[Finding]:
    """Yield the findings of one database."""
    for table in survey.tables:
        yield from _of_table(survey, table)
    if survey.on_standby:
        return
    if survey.wal_level != "logical":
        yield Finding(
            Rule.SOURCE_WAL_LEVEL,
            Severity.ERROR,
            survey.where,
            "Debezium cannot start: the log does not contain the changes of rows",
            f"wal_level is {survey.wal_level}",
            "ALTER SYSTEM SET wal_level = 'logical';  -- then restart the server",
        )
    for slot in survey.slots:
        yield from _of_slot(survey, slot)


def _of_slot(survey: PostgresSurvey, slot: Slot) -> Iterator[Finding]:
    subject = f"{survey.where}, slot {slot.name}"
    drop = "SELECT pg_drop_replication_slot('" + slot.name.replace("'", "''") + "');"
    evidence = f"it retains {slot.retained // _MIB:,} MiB of the log"
    if slot.wal_status == "lost":
        yield Finding(
            Rule.SOURCE_SLOT_LOST,
            Severity.ERROR,
            subject,
            "changes are lost: the server has removed the log that the slot needs, and Debezium cannot continue",
            "wal_status is lost",
            f"{drop}  -- then let Debezium take a new snapshot; headrace verify finds the rows that differ",
        )
    elif not slot.active:
        end = (
            "the disk of the server is full, and it stops"
            if survey.slot_limit is None
            else f"it has {survey.slot_limit // _MIB:,} MiB (max_slot_wal_keep_size), and then its changes are lost"
        )
        yield Finding(
            Rule.SOURCE_SLOT_INACTIVE,
            Severity.WARNING,
            subject,
            f"nothing reads the slot: tables get no changes, and the log grows until {end}",
            evidence,
            f"start its Debezium connector again; or, if nobody needs it any more: {drop}",
        )
    elif slot.retained > MUCH_LOG:
        yield Finding(
            Rule.SOURCE_SLOT_BEHIND,
            Severity.WARNING,
            subject,
            "Debezium is far behind the database, or confirms nothing because its tables are idle: the log grows",
            evidence,
            "if tables are idle, set heartbeat.interval.ms=10000 and heartbeat.action.query at the source connector",
        )


def _of_table(survey: PostgresSurvey, table: SurveyedTable) -> Iterator[Finding]:
    subject, name = f"{survey.where}, table {table.name}", quoted(table.table.schema, table.table.table)
    if not table.exists:
        yield Finding(
            Rule.TABLE_MISSING,
            Severity.WARNING,
            subject,
            "its topic gets no changes any more, and reselect cannot read its rows",
            "the database has no table of the topic's name",
            "name the table as its topic says, or remove the topic from the connector",
        )
        return
    if table.published is False:
        publication = survey.publications[0] if survey.publications else "dbz_publication"
        yield Finding(
            Rule.TABLE_UNPUBLISHED,
            Severity.ERROR,
            subject,
            "its changes never arrive: pgoutput sends the tables of publications only",
            f"no publication has it; there are: {', '.join(survey.publications) or 'none'}",
            f"ALTER PUBLICATION {quoted(publication)} ADD TABLE {name};  -- then take a new snapshot of it",
        )
    if table.identity == "n" or (table.identity == "d" and not table.has_key):
        yield Finding(
            Rule.TABLE_WITHOUT_IDENTITY,
            Severity.ERROR,
            subject,
            "PostgreSQL refuses its updates and deletes, or they arrive without a key",
            "REPLICA IDENTITY is NOTHING" if table.identity == "n" else "it has no primary key",
            f"ALTER TABLE {name} REPLICA IDENTITY {'DEFAULT' if table.has_key else 'FULL'};"
            + ("" if table.has_key else "  -- and set message.key.columns at the source connector"),
        )
    elif not table.has_key and table.identity == "f":
        yield Finding(
            Rule.TABLE_WITHOUT_KEY,
            Severity.WARNING,
            subject,
            "its events have no key, and such events cannot become rows that are updated",
            "it has no primary key",
            f"set message.key.columns={table.name}:<columns> at the source connector, or add a primary key",
        )
    if table.identity == "i" and table.has_key:
        yield Finding(
            Rule.TABLE_IDENTITY_INDEX,
            Severity.ERROR,
            subject,
            "deletes and changed keys arrive with wrong keys: deleted rows stay in the lake",
            "REPLICA IDENTITY is USING INDEX, and the table has a primary key",
            f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT;  -- then headrace verify --repair",
        )
    if not table.readable:
        yield Finding(
            Rule.TABLE_UNREADABLE,
            Severity.ERROR,
            subject,
            "values that events omit cannot be read, and the table fails",
            f"user {survey.user} may not select all of its rows",
            f"GRANT SELECT ON {name} TO {quoted(survey.user)};  -- and without row-level security for this user",
        )
    yield from _of_columns(subject, name, table)


def _of_columns(subject: str, name: str, table: SurveyedTable) -> Iterator[Finding]:
    if table.absent:
        yield Finding(
            Rule.TABLE_COLUMN_ABSENT,
            Severity.WARNING,
            subject,
            "the lake has no such columns: Debezium has no converter for their types, and no event contains them",
            f"columns {', '.join(table.absent)}",
            f"ALTER TABLE {name} ADD COLUMN {quoted(f'{table.absent[0]}_text')} text;  "
            "-- and fill it by a trigger, if the lake needs it",
        )
    if table.omitted:
        yield Finding(
            Rule.TABLE_VALUES_OMITTED,
            Severity.WARNING,
            subject,
            "updates omit unchanged large values, and the connector does not read them: where the lake does not have "
            "the row, they are missing",
            f"columns {', '.join(table.omitted)}; REPLICA IDENTITY is not FULL",
            f"reselect.source.reads=all and reselect.unavailable.values=true, or ALTER TABLE {name} "
            "REPLICA IDENTITY FULL;",
        )
    if table.intervals:
        yield Finding(
            Rule.TABLE_INTERVALS,
            Severity.WARNING,
            subject,
            "months and years become 30.4375 and 365.25 days: intervals cannot be restored from the lake",
            f"columns {', '.join(table.intervals)}; interval.handling.mode is numeric",
            "interval.handling.mode=string  # at the source connector and in this one, for a new table",
        )
