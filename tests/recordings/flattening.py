"""Recordings in the form of Debezium's ``ExtractNewRecordState`` (``connect.md`` section 14.2).

Written from the transform's documentation, for the tests alone: there is no recording of the transform itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recordings.records import RecordedRecord, Variant

DELETE_MODES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")


@dataclass(frozen=True, slots=True)
class Unwrap:
    """The transform's options. ``add`` has names in the syntax of ``add.fields`` and ``add.headers``."""

    deletes: str = "tombstone"
    add: tuple[str, ...] = ()
    in_headers: bool = False
    prefix: str = "__"

    def flatten(self, records: Sequence[RecordedRecord], of: Variant) -> list[RecordedRecord]:
        """The records of a topic after the transform, at new offsets."""
        kept = [flat for record in records for flat in self._each(record, of)]
        return [replace(record, offset=offset) for offset, record in enumerate(kept)]

    def _each(self, record: RecordedRecord, of: Variant) -> Iterator[RecordedRecord]:
        if record.value is None:
            if self.deletes == "rewrite-with-tombstone":
                yield record
            return
        document = json.loads(record.value)
        envelope = document if of.bare else document["payload"]
        deleted = envelope["op"] == "d"
        if envelope["op"] in "tm" or (deleted and self.deletes == "drop"):
            return
        if self.in_headers:
            record = replace(record, headers=(*record.headers, *self._headers(envelope)))
        if deleted and not self.deletes.startswith("rewrite"):
            yield replace(record, value=None)
        else:
            schema = None if of.bare else self._schema(document["schema"])
            yield replace(record, value=_document(schema, self._row(envelope, deleted)))

    def _row(self, envelope: Mapping[str, Any], deleted: bool) -> dict[str, Any]:
        row = dict(envelope["before"] if deleted else envelope["after"])
        if self.deletes.startswith("rewrite"):
            row[f"{self.prefix}deleted"] = "true" if deleted else "false"
        added = () if self.in_headers else self.add
        return row | {self._name(name): _value(envelope, name) for name in added}

    def _schema(self, envelope: Mapping[str, Any]) -> dict[str, Any]:
        fields = {field["field"]: field for field in envelope["fields"]}
        source = {field["field"]: field for field in fields["source"]["fields"]}
        added = [] if self.in_headers else [(name, _field(fields, source, name)) for name in self.add]
        if self.deletes.startswith("rewrite"):
            added.insert(0, ("deleted", {"type": "string"}))
        members = [field | {"field": self._name(name), "optional": True} for name, field in added]
        row = {name: value for name, value in fields["after"].items() if name != "field"}
        return row | {"fields": [*row["fields"], *members]}

    def _headers(self, envelope: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
        for name in self.add:
            yield self._name(name), json.dumps(_value(envelope, name)).encode()

    def _name(self, name: str) -> str:
        return self.prefix + name.replace(".", "_")


def _value(envelope: Mapping[str, Any], name: str) -> Any:
    part, _, inner = name.rpartition(".")
    if part:
        return envelope[part].get(inner)
    return envelope[name] if name in envelope else envelope["source"].get(name)


def _field(fields: Mapping[str, Any], source: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = source[name.rpartition(".")[2]] if "." in name or name not in fields else fields[name]
    return found


def _document(schema: Mapping[str, Any] | None, payload: Any) -> bytes:
    document = payload if schema is None else {"schema": schema, "payload": payload}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
