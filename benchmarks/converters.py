"""What decoding costs by form: one recorded topic as JSON with schemas, and as Avro with its schemas in a registry.

``python -m benchmarks.converters`` prints microseconds of CPU for each event, of the best of five rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from recordings.avro import as_avro, conversion
from recordings.records import AVRO, recording, variant

from headrace.core.cassandra_decoder import ConnectorDecoder
from headrace.core.converter import JsonConverter
from headrace.core.envelope import EnvelopeOptions

TOPIC = "pg_d.public.incr_t"
EVENTS = 20_000


def main() -> None:
    """Print both, and their ratio."""
    recorded = [each for each in recording(AVRO)[TOPIC] if each.value is not None]
    records = (recorded * (EVENTS // len(recorded) + 1))[:EVENTS]
    divide = JsonConverter(True).divide
    documents = [replace(each, value=divide(each.value)) for each in records]  # type: ignore[arg-type] # as feeds do
    json = _cost(lambda: ConnectorDecoder(TOPIC, EnvelopeOptions()).decode(documents))
    given = conversion(variant(AVRO).recording_file.parent)
    avro_records = [as_avro(each) for each in records]
    avro = _cost(lambda: ConnectorDecoder(TOPIC, EnvelopeOptions(), None, given).decode(avro_records))
    print(f"JSON with schemas {json:5.1f} us of CPU an event")
    print(f"Avro              {avro:5.1f} us of CPU an event, {avro / json:.1f} times as much")


def _cost(decode: Callable[[], object]) -> float:
    rounds = []
    for _ in range(5):
        began = time.process_time()
        decode()
        rounds.append(time.process_time() - began)
    return min(rounds) / EVENTS * 1e6


if __name__ == "__main__":
    main()
