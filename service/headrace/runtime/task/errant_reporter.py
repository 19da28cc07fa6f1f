"""Report records that cannot be used (``connect.md`` section 9): to the log and the dead letter queue, or fail.

A batch may prove later that a record cannot be used, so the records of batches that are not durable are kept.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence

from headrace.core.decode.records import Errant
from headrace.core.model.errors import Fatal, Stage
from headrace.ports import Chunk, DeadLetterQueue, ErrantRecord, Record, TopicPartition
from headrace.runtime.observation import NO_OBSERVER, Observer
from headrace.runtime.trace import render

log = logging.getLogger(__name__)

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_SINK_TASK = "org.apache.kafka.connect.sink.SinkTask"

_TOLERANT = "errors.tolerance=all"

DROPS = (
    "records that cannot be used are skipped, and no copy of them is kept, because there is no dead letter queue; set "
    "errors.deadletterqueue.topic.name, and errors.log.enable=true to log each"
)


class ErrantReporter:
    """Reports the bad records of one task according to ``errors.*``."""

    def __init__(
        self,
        task: str,
        dead_letter_queue: DeadLetterQueue | None,
        *,
        tolerate_errors: bool,
        log_errors: bool,
        log_messages: bool,
        converters: Mapping[Stage, str] | None = None,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        """``converters`` names the class of each converter's stage; the others are JsonConverters."""
        self._observer = observer
        self._task = task
        self._dead_letter_queue = dead_letter_queue
        self._tolerate_errors = tolerate_errors
        self._log_errors = log_errors
        self._log_messages = log_messages
        self._converters = converters or {}

    def note_drops(self) -> None:
        """Warn, with a note in the task's status, if records that cannot be used are skipped without a copy."""
        if self._tolerate_errors and self._dead_letter_queue is None:
            log.warning("%s: %s: %s", self._task, _TOLERANT, DROPS)
            self._observer.on_note(DROPS, _TOLERANT)

    async def report(self, records: Sequence[Record], errants: Sequence[Errant]) -> None:
        """Report bad records; return when the dead letter queue, if there is one, has accepted them.

        With ``errors.tolerance=none`` report only the first and raise Fatal: a restart reads the others again.
        """
        if not errants:
            return
        if not self._tolerate_errors:
            errants = [min(errants, key=lambda errant: errant.index)]
        reported = []
        for errant in errants:
            class_name = self._converters.get(errant.stage, _JSON) if _converts(errant.stage) else _SINK_TASK
            class_name = errant.error.class_name or class_name
            reported.append(ErrantRecord(records[errant.index], errant.stage, class_name, errant.error))
        self._observer.on_errant_records(len(reported), skipped=self._tolerate_errors, logged=self._log_errors)
        for record in reported if self._log_errors else ():
            log.error("%s", _log_line(self._task, record, self._log_messages))
        if self._dead_letter_queue is not None:
            is_kept = False
            try:
                await self._dead_letter_queue.report(reported)
                is_kept = True
            finally:
                self._observer.on_dead_letters(len(reported), failed=not is_kept)
        if not self._tolerate_errors:
            raise Fatal(f"Tolerance exceeded in error handler: {_describe(reported[0])}") from reported[0].error

    async def close(self) -> None:
        if self._dead_letter_queue is not None:
            await self._dead_letter_queue.close()


def _log_line(task: str, errant: ErrantRecord, with_message: bool) -> str:
    """Kafka Connect's line: what went wrong where and, with ``errors.log.include.messages``, in which record.

    Never its content; and no timestampType, which is not kept of records.
    """
    record = errant.record
    position = (
        f", where consumed record is {{topic='{record.topic}', partition={record.partition}, offset={record.offset}, "
        f"timestamp={record.timestamp}}}"
    )
    return (
        f"Error encountered in task {task}. Executing stage '{errant.stage}' with class '{errant.class_name}'"
        f"{position if with_message else ''}.\n{render(errant.error).rstrip()}"
    )


def _describe(errant: ErrantRecord) -> str:
    """Return where a record failed and why: at a converter with the option that names it, which may be the cause."""
    record = errant.record
    option = f" ({errant.stage.name.lower().replace('_', '.')}={errant.class_name})" if _converts(errant.stage) else ""
    problem = str(errant.error).removesuffix(".")
    return (
        f"{record.topic}-{record.partition} at offset {record.offset}, stage {errant.stage}{option}: {problem}. If "
        "only this record is at fault, correct it at its source, or set errors.tolerance=all with "
        "errors.deadletterqueue.topic.name"
    )


def _converts(stage: Stage) -> bool:
    return stage.name.endswith("CONVERTER")


class UncommittedRecords:
    """The records that were read but not committed, by partition. Stores none if not ``wanted``."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._records: dict[TopicPartition, deque[tuple[int, Sequence[Record]]]] = {}

    def keep(self, chunk: Chunk) -> None:
        if self._wanted:
            self._records.setdefault(chunk.partition, deque()).append((chunk.end, chunk.records))

    def discard(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Discard the chunks below these next offsets, which are durable."""
        for partition, offset in offsets.items():
            chunks = self._records.get(partition)
            while chunks and chunks[0][0] <= offset:
                chunks.popleft()

    def clear(self) -> None:
        """Discard all records, because the member that owns the partitions now reads them again."""
        self._records.clear()

    def record(self, partition: TopicPartition, offset: int) -> Record:
        """Return a stored record. Raises Fatal if it is not stored."""
        for _, records in self._records.get(partition, ()):
            for record in records:
                if record.offset == offset:
                    return record
        raise Fatal(f"{partition.topic}-{partition.partition}: the record at offset {offset} is not stored any more")
