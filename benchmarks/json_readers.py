"""The cost of reading the JSON of events by msgspec, and by the readers of Arrow and Polars, which return columns.

``python -m benchmarks.json_readers`` prints microseconds of CPU for each event of ``benchmarks.workload``, of the best
of seven rounds in one process, without the schemas in the records: Headrace has removed them before. All readers have
the fields that Headrace uses, with their types. The last line is Headrace's complete decoding, columns and errors
included, of which msgspec's time is the part that another reader would replace. Polars is in
requirements/readers.txt.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from math import inf
from types import GenericAlias
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.json

from benchmarks.envelope import encode
from benchmarks.workload import TOPIC, Source, Workload
from headrace.converters.conversion import converting_decoder
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.json_converter import Document, JsonConverter
from headrace_dev.memory.feed import MemoryRecord

EVENTS = 4000  # max.poll.records
AT_ONCE = 512  # as many as Headrace decodes at once
ROUNDS = 7

_SOURCE = {
    **dict.fromkeys(("connector", "db", "schema", "table", "sequence", "snapshot"), str),
    **dict.fromkeys(("ts_ms", "ts_us", "txId", "lsn"), int),
}
_ROW = {
    **dict.fromkeys(("id", "qty", "created"), int),
    **dict.fromkeys(("name", "email", "balance", "updated", "note"), str),
    "active": bool,
    "score": float,
}
_ARROW = {int: pa.int64(), str: pa.string(), bool: pa.bool_(), float: pa.float64()}
_POLARS = {int: pl.Int64, str: pl.String, bool: pl.Boolean, float: pl.Float64}


def main() -> None:
    """Print the cost of each reader."""
    records = _records()
    payloads = [record.value.payload for record in records if isinstance(record.value, Document)]
    groups = [payloads[begin : begin + AT_ONCE] for begin in range(0, len(payloads), AT_ONCE)]
    decoder = converting_decoder(TOPIC, EnvelopeOptions())
    contestants: dict[str, tuple[Callable[[Any], Any], Sequence[Any]]] = {
        "msgspec, to objects": (_msgspec(), groups),
        "pyarrow, to columns": (_pyarrow(), groups),
        "polars, to columns": (_polars(), groups),
        "Headrace's decoding": (decoder.decode, [records]),
    }
    best = dict.fromkeys(contestants, inf)
    for _ in range(ROUNDS):
        for name, (read, inputs) in contestants.items():
            best[name] = min(best[name], _seconds(read, inputs))
    size = sum(map(len, payloads)) // len(payloads)
    print(f"{len(records)} events of {size} bytes without their schemas")
    for name, cost in best.items():
        print(f"{name:20} {cost / len(records) * 1e6:5.2f} us of CPU an event")


def _records() -> list[MemoryRecord]:
    divide = JsonConverter(True).divide
    events = Source(Workload(EVENTS)).events()
    documents = (encode(event) for event in events if event.after is not None)
    return [MemoryRecord(TOPIC, 0, at, 0, key, divide(value)) for at, (key, value) in enumerate(documents)]


def _msgspec() -> Callable[[list[bytes]], Any]:
    source, row = (
        msgspec.defstruct(name, [(field, kind | None, None) for field, kind in fields.items()], gc=False)
        for name, fields in (("Source", _SOURCE), ("Row", _ROW))
    )
    envelope = msgspec.defstruct("Envelope", [("op", str), ("source", source), ("after", row | None, None)], gc=False)
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(GenericAlias(list, (envelope,)))
    return lambda group: decoder.decode(b"[" + b",".join(group) + b"]")


def _pyarrow() -> Callable[[list[bytes]], Any]:
    source, row = (pa.struct([(name, _ARROW[kind]) for name, kind in fields.items()]) for fields in (_SOURCE, _ROW))
    schema = pa.schema([("op", pa.string()), ("source", source), ("after", row)])
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 26)
    return lambda group: pyarrow.json.read_json(io.BytesIO(b"\n".join(group)), read, parse)


def _polars() -> Callable[[list[bytes]], Any]:
    source, row = (pl.Struct({name: _POLARS[kind] for name, kind in fields.items()}) for fields in (_SOURCE, _ROW))
    schema = {"op": pl.String, "source": source, "after": row}
    return lambda group: pl.read_ndjson(io.BytesIO(b"\n".join(group)), schema=schema)


def _seconds(read: Callable[[Any], Any], inputs: Sequence[Any]) -> float:
    began = time.process_time()
    for each in inputs:
        read(each)
    return time.process_time() - began


if __name__ == "__main__":
    main()
