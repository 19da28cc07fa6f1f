"""Whether another reader of JSON would decode events faster than msgspec: Arrow's and Polars', which make columns.

``python -m benchmarks.json_readers`` prints microseconds of CPU for each event of ``benchmarks.workload``, of the best
of seven rounds in one process, without the schemas in the records: Headrace has removed them before. All readers have
the fields that Headrace uses, with their types. The last line is Headrace's complete decoding, columns and errors
included, of which msgspec's time is the part that another reader would replace. Polars is in
requirements/readers.txt.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
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
    readers = {"msgspec, to objects": _msgspec(), "pyarrow, to columns": _pyarrow(), "polars, to columns": _polars()}
    best = dict.fromkeys([*readers, "Headrace's decoding"], float("inf"))
    for _ in range(ROUNDS):
        for name, read in readers.items():
            best[name] = min(best[name], _seconds(lambda read=read: [read(group) for group in groups]))  # type: ignore[misc]
        decoder = converting_decoder(TOPIC, EnvelopeOptions())
        whole = _seconds(lambda decoder=decoder: decoder.decode(records))  # type: ignore[misc]
        best["Headrace's decoding"] = min(best["Headrace's decoding"], whole)
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
    decoder = msgspec.json.Decoder(list[envelope])  # type: ignore[valid-type]
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


def _seconds(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    main()
