"""Change events that are made to do harm: each has to become a bad record."""

from __future__ import annotations

import json
from typing import Any

from support.records.envelopes import change

TEXT, NUMBER, DOUBLE = {"type": "string"}, {"type": "int64"}, {"type": "double"}
VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}
DEEP = b"[" * 200_000
NESTED = b"[" * 100_000 + b"]" * 100_000
MEGABYTE = b'"' + b"f39/" * 250_000 + b'"'


def decimal(scale: object, precision: object = 10) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


def document(schema: dict[str, Any], value: bytes, name: str = "v") -> bytes:
    """Return a change whose column has a schema and a value, which is inserted as it is."""
    made = json.loads(change("c", {"id": 2}, 5))
    made["schema"]["fields"][0]["fields"].append({**schema, "field": name, "optional": True})
    made["payload"]["after"][name] = "@"
    return json.dumps(made).encode().replace(b'"@"', value)


HOSTILE = {
    "a deep value": document(TEXT, DEEP),
    "a closed deep value": document(TEXT, NESTED),
    "a deep document": DEEP,
    "a deep schema": document({"type": "array", "items": TEXT}, b"[]").replace(
        b'"items": {"type": "string"}',
        b'"items": {"type":"array",' * 20_000 + b'"items":{"type":"string"}' + b"}" * 20_000,
    ),
    "a huge exponent in an integer": document(NUMBER, b"1e999999999"),
    "a huge exponent in a double": document(DOUBLE, b"1e999999999"),
    "a million digits in an integer": document(NUMBER, b"9" * 1_000_000),
    "a million digits in a decimal": document(decimal(2), b"9" * 1_000_000),
    "a huge exponent in a decimal": document(decimal(2), b"1e999999999"),
    "a tiny exponent in a decimal": document(decimal(2), b"1e-999999999"),
    "a tiny exponent of zero": document(decimal(2), b"0e-999999999"),
    "a huge scale": document(decimal(2**31 - 1), b'"AQ=="'),
    "a negative scale": document(decimal(-(2**31)), b'"AQ=="'),
    "a scale of many digits": document(decimal("9" * 100_000), b'"AQ=="'),
    "a precision of many digits": document(decimal(2, "9" * 100_000), b'"AQ=="'),
    "a decimal of a megabyte": document(decimal(2), MEGABYTE),
    "a variable scale": document(VARIABLE, b'{"scale":2147483647,"value":"AQ=="}'),
    "a negative variable scale": document(VARIABLE, b'{"scale":-2147483648,"value":"AQ=="}'),
    "a variable decimal of a megabyte": document(VARIABLE, b'{"scale":0,"value":' + MEGABYTE + b"}"),
    "a long time": document(
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, b'"' + b"9" * 1_000_000 + b'-01-01T00:00:00Z"'
    ),
    "a huge position": document(TEXT, b"null").replace(b'"lsn": 5', b'"lsn": ' + b"9" * 5000),
    "an unknown operation": document(TEXT, b"null").replace(b'"op": "c"', b'"op": "' + b"x" * 100_000 + b'"'),
    "half of a character": document(TEXT, b'"\\ud800"'),
    "a column's name with NUL": document(TEXT, b'"x"', "v\0"),
    "a column's name with a quote": document(TEXT, b'"x"', 'v"'),
    "many columns": change("c", {f"c{n}": 1 for n in range(20_000)}, 5),
    "no UTF-8": document(TEXT, b'"\xff"'),
    "nothing": b"\0" * 1000,
}
