"""The cost of decoding by format: one recorded topic as JSON with schemas, and as Avro with schemas in a registry.

``python -m benchmarks.converters`` prints microseconds of CPU for each event, of the best of five rounds: of as many
records at once as a poll brings while a worker catches up (``max.poll.records`` is 4000), and of fewer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from recordings.avro import as_avro, conversion
from recordings.records import AVRO, recording, variant

from headrace.converters.conversion import converting_decoder
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.json_converter import JsonConverter
from headrace.core.decode.record_decoder import Decoder
from headrace.core.decode.records import KafkaRecord

TOPIC = "pg_d.public.incr_t"
EVENTS = 20_000


def main() -> None:
    """Print both costs, and their ratio."""
    recorded = [each for each in recording(AVRO)[TOPIC] if each.value is not None]
    records = (recorded * (EVENTS // len(recorded) + 1))[:EVENTS]
    divide = JsonConverter(True).divide
    documents = [replace(each, value=divide(each.value)) for each in records]  # type: ignore[arg-type] # as feeds do
    given = conversion(variant(AVRO).recording_file.parent)
    avro_records = [as_avro(each) for each in records]
    for at_once in (4000, 1000, 250):
        json = _cost(converting_decoder(TOPIC, EnvelopeOptions()), documents, at_once)
        avro = _cost(converting_decoder(TOPIC, EnvelopeOptions(), None, given), avro_records, at_once)
        print(
            f"{at_once:5} records at once: JSON with schemas {json:4.1f}, Avro {avro:4.1f} us of CPU an event, "
            f"{avro / json:.1f} times as much"
        )


def _cost(decoder: Decoder, records: Sequence[KafkaRecord], at_once: int) -> float:
    rounds = []
    for _ in range(5):
        began = time.process_time()
        for begin in range(0, EVENTS, at_once):
            decoder.decode(records[begin : begin + at_once])
        rounds.append(time.process_time() - began)
    return min(rounds) / EVENTS * 1e6


if __name__ == "__main__":
    main()
