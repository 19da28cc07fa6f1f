"""Tests of the log line of a bad record against Kafka Connect's (``fixtures/connect-rest/error-log-lines.txt``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from headrace.core.decode.records import Errant
from headrace.core.model.errors import BadRecord, Fatal, Stage
from headrace.ports import ErrantRecord
from headrace.runtime.task.errant_reporter import ErrantReporter
from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue
from headrace_dev.memory.feed import MemoryRecord

pytestmark = pytest.mark.anyio

JSON = "org.apache.kafka.connect.json.JsonConverter"
CONNECT_LINE = (
    "Error encountered in task d1-0. Executing stage 'VALUE_CONVERTER' with class "
    "'org.apache.kafka.connect.json.JsonConverter', where consumed record is {topic='snk-dlqin', partition=0, "
    "offset=1, timestamp=1795248426567, timestampType=CreateTime}."
)


@pytest.mark.parametrize("with_message", [True, False])
async def test_the_line_equals_that_of_kafka_connect(caplog: pytest.LogCaptureFixture, with_message: bool) -> None:
    """The line equals Kafka Connect's, except the timestampType. It never contains the content of the record."""
    reporter = ErrantReporter("d1-0", None, tolerate_errors=True, log_errors=True, log_messages=with_message)
    record = MemoryRecord("snk-dlqin", 0, 1, 1795248426567, b"secret key", b"{secret", ())
    with caplog.at_level(logging.ERROR):
        await reporter.report([record], [Errant(0, Stage.VALUE_CONVERTER, BadRecord("not JSON"))])
    [line, *trace] = caplog.messages[0].split("\n")
    wanted = CONNECT_LINE.replace(", timestampType=CreateTime", "")
    assert line == (wanted if with_message else wanted.partition(", where")[0] + ".")
    assert trace == ["headrace.core.model.errors.BadRecord: not JSON"]
    assert "secret" not in caplog.text


async def test_nothing_is_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    """With ``errors.log.enable=false`` the reporter logs no bad record."""
    reporter = ErrantReporter("d1-0", None, tolerate_errors=True, log_errors=False, log_messages=True)
    record = MemoryRecord("snk-dlqin", 0, 1, 1795248426567, b"k", b"v", ())
    await reporter.report([record], [Errant(0, Stage.VALUE_CONVERTER, BadRecord("not JSON"))])
    assert caplog.messages == []


class RefusingQueue:
    """A dead letter queue that refuses every record."""

    async def report(self, errant: Sequence[ErrantRecord]) -> None:
        raise Fatal("too large")

    async def close(self) -> None:
        pass


async def test_the_log_contains_a_record_that_the_queue_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """The reporter logs a bad record before it sends it to the dead letter queue, as in Kafka Connect."""
    reporter = ErrantReporter("d1-0", RefusingQueue(), tolerate_errors=True, log_errors=True, log_messages=True)
    record = MemoryRecord("snk-dlqin", 0, 1, 1795248426567, b"k", b"v", ())
    with pytest.raises(Fatal):
        await reporter.report([record], [Errant(0, Stage.VALUE_CONVERTER, BadRecord("not JSON"))])
    assert "topic='snk-dlqin', partition=0, offset=1" in caplog.text


async def test_without_tolerance_the_first_bad_record_is_the_last_that_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without tolerance the task fails at the first bad record and reports no later ones, as in Kafka Connect."""
    queue = MemoryDeadLetterQueue("d1", 0)
    reporter = ErrantReporter("d1-0", queue, tolerate_errors=False, log_errors=True, log_messages=True)
    records = [MemoryRecord("t", 0, offset, 0, b"k", b"%d" % offset, ()) for offset in range(5)]
    errants = [Errant(index, Stage.VALUE_CONVERTER, BadRecord("not JSON")) for index in (3, 1, 4)]
    with pytest.raises(Fatal, match="t-0 at offset 1,"):
        await reporter.report(records, errants)
    assert [letter.value for letter in queue.letters] == [b"1"]
    assert [line.partition("offset=")[2][0] for line in caplog.messages] == ["1"]


@pytest.mark.parametrize(
    ("stage", "where"),
    [
        (
            Stage.VALUE_CONVERTER,
            "stage VALUE_CONVERTER (value.converter=com.example.Converter): no magic byte. If only",
        ),
        (Stage.KEY_CONVERTER, f"stage KEY_CONVERTER (key.converter={JSON}): no magic byte. If only this record is at"),
        (Stage.TASK_PUT, "stage TASK_PUT: no magic byte. If only this record is at fault, correct it at its source"),
    ],
)
async def test_the_error_of_a_converter_names_its_option(stage: Stage, where: str) -> None:
    """A wrong converter fails at the first record: the error names the option and the class, not only the record."""
    converters = {Stage.VALUE_CONVERTER: "com.example.Converter"}
    reporter = ErrantReporter(
        "d1-0", None, tolerate_errors=False, log_errors=False, log_messages=False, converters=converters
    )
    record = MemoryRecord("t", 0, 1, 0, b"k", b"v", ())
    with pytest.raises(Fatal) as failure:
        await reporter.report([record], [Errant(0, stage, BadRecord("no magic byte."))])
    assert f"t-0 at offset 1, {where}" in str(failure.value)
