"""Records are decoded through a chain of transforms: keys, tables, skipped and errant records."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import pytest
from support.records.envelopes import key, whole_change

from headrace.core.decode.decoded import Decoded, InsufficientMetadata, RoutedEvents
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.flattened import MetadataNames
from headrace.core.model.errors import Stage
from headrace.core.model.events import Changes, Operation
from headrace.transforms.decoder import TransformingDecoder
from headrace.transforms.registry import chain

TOPIC = "shop.public.items"
ROW = {"id": 1, "name": "new"}


@dataclass(frozen=True)
class Record:
    """A record of partition 0."""

    offset: int
    key: bytes | None
    value: bytes | None
    partition: int = 0
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[str, bytes], ...] = ()


def configured(*links: dict[str, str]) -> dict[str, str]:
    """Return the configuration of a chain of transforms, each given by its options."""
    found = {"transforms": ",".join(f"t{place}" for place in range(len(links)))}
    for place, options in enumerate(links):
        found |= {f"transforms.t{place}.{name}": value for name, value in options.items()}
    return found


UNWRAP = {"type": "ExtractNewRecordState", "replace.null.with.default": "false"}
SHARDS = {"type": "ByLogicalTableRouter", "topic.regex": r"(.*)\d\.public\.(.*)", "topic.replacement": "$1.$2"}


def decoded(
    records: list[Record], *links: dict[str, str], topic: str = TOPIC, options: EnvelopeOptions | None = None
) -> Decoded:
    return TransformingDecoder(topic, options or EnvelopeOptions(), chain(configured(*links))).decode(records)


def only(found: Decoded) -> Changes:
    """Return the single run of changes."""
    [changes] = found.events
    assert isinstance(changes, Changes)
    return changes


def columns(changes: Changes) -> dict[str, list[Any]]:
    return {column.name: column.values.to_pylist() for column in changes.columns}


def test_the_shard_is_a_column_of_the_key_and_of_the_row() -> None:
    """ByLogicalTableRouter adds the physical table to the key and the row, so that a delete selects the shard's row."""
    records = [
        Record(0, key({"id": 1}), whole_change("c", None, ROW, 100)),
        Record(1, key({"id": 1}), whole_change("d", ROW, None, 110)),
    ]
    found = decoded(records, SHARDS, topic="shop7.public.items")
    changes = only(found)
    assert [each.topic for each in found.of(RoutedEvents)] == ["shop.items"]
    assert changes.key_fields == ("id", "__dbz__physicalTableIdentifier")
    assert columns(changes)["__dbz__physicalTableIdentifier"] == ["shop7.public.items"] * 2
    assert changes.key[0] == changes.key[1]
    assert changes.version.topic == "shop7.public.items"
    assert found.of(InsufficientMetadata)  # the database has no such column


def test_shards_may_be_unwrapped_before_or_after() -> None:
    """The row has the key's field if ExtractNewRecordState runs before or after ByLogicalTableRouter."""
    records = [Record(0, key({"id": 1}), whole_change("c", None, ROW, 100))]
    for links in ((SHARDS, UNWRAP), (UNWRAP, SHARDS)):
        changes = only(decoded(records, *links, topic="shop7.public.items"))
        assert columns(changes) == {
            "id": [1],
            "name": ["new"],
            "__dbz__physicalTableIdentifier": ["shop7.public.items"],
        }


def test_a_key_of_fields_of_the_row() -> None:
    """ValueToKey makes the key of a field of the row."""
    value_to_key = {"type": "ValueToKey", "fields": "name"}
    records = [Record(0, None, whole_change("c", None, ROW, 100))]
    assert only(decoded(records, UNWRAP, value_to_key)).key_fields == ("name",)


def test_a_primitive_key_is_the_configured_column() -> None:
    """A key that ExtractField$Key has made primitive is the column of ``key_fields``, also for a delete."""
    extract = {"type": "ExtractField$Key", "field": "id"}
    records = [
        Record(0, key({"id": 1}), whole_change("c", None, ROW, 100)),
        Record(1, key({"id": 1}), whole_change("d", ROW, None, 110)),
    ]
    changes = only(decoded(records, extract, options=EnvelopeOptions(key_fields=("id",))))
    assert changes.operation.tolist() == [Operation.CREATE, Operation.DELETE]
    assert changes.key[0] == changes.key[1]


@pytest.mark.parametrize("links", [(), (UNWRAP,)], ids=["envelopes", "rows"])
def test_renamed_columns_are_renamed_in_keys(links: tuple[dict[str, str], ...]) -> None:
    """A delete, which has only its key, has the encoded key of the renamed row."""
    names = {"type": "FieldNameTransformation", "column.naming.style": "UPPER_CASE"}
    records = [
        Record(0, key({"id": 1}), whole_change("c", None, ROW, 100)),
        Record(1, key({"id": 1}), whole_change("d", ROW, None, 110)),
        Record(2, key({"id": 1}), None),
    ]
    changes = only(decoded(records, *links, names))
    assert changes.key_fields == ("ID",)
    assert changes.operation.tolist() == [Operation.CREATE, Operation.DELETE]
    assert changes.key[0] == changes.key[1]
    assert {name: values[0] for name, values in columns(changes).items()} == {"ID": 1, "NAME": "new"}


def test_metadata_is_read_with_the_configured_prefixes() -> None:
    """Operation and table are read from fields and headers with the prefixes that the transform is configured with."""
    unwrap = UNWRAP | {"add.headers.prefix": "h.", "add.fields": "op", "add.fields.prefix": "f_"}
    options = EnvelopeOptions(added=MetadataNames("f_", "h."))
    changes = only(decoded([Record(0, key({"id": 1}), whole_change("c", None, ROW, 100))], unwrap, options=options))
    assert (changes.operation[0], changes.table.table) == (Operation.CREATE, "items")
    assert columns(changes) == {"id": [1], "name": ["new"]}
    assert changes.version.position[0] != b""


@pytest.mark.parametrize(
    ("link", "too_little"),
    [
        ({"type": "RegexRouter", "regex": "x", "replacement": "y"}, False),
        (UNWRAP, False),
        ({"type": "MaskField$Value", "fields": "name"}, True),
    ],
)
def test_reselect_is_disabled_behind_transforms_that_change_values(link: dict[str, str], too_little: bool) -> None:
    """Reselect is disabled behind a transform that changes values, because it does not apply to reselected values."""
    unwrapped = [] if link is UNWRAP else [UNWRAP]
    records = [Record(0, key({"id": 1}), whole_change("c", None, ROW, 100))]
    assert bool(decoded(records, *unwrapped, link).of(InsufficientMetadata)) is too_little


def test_heartbeats_without_a_schema_are_skipped() -> None:
    """A heartbeat does not get the fields of its key, which would make a row of it."""
    plain = EnvelopeOptions(key_schemas=False, value_schemas=False)
    beat = Record(0, b'{"serverName":"shop"}', b'{"ts_ms":1}')
    found = decoded([beat], {"type": "RegexRouter", "regex": "x", "replacement": "y"}, options=plain)
    assert (found.skipped, found.events) == (1, [])


def test_key_fields_are_added_to_rows_without_a_schema() -> None:
    """A field that a transform inserts into the key is added to the row of an envelope without a schema."""
    plain = EnvelopeOptions(key_schemas=False, value_schemas=False)
    insert = {"type": "InsertField$Key", "static.field": "shard", "static.value": "7"}
    event = json.dumps({"op": "c", "source": {"name": "s"}, "before": None, "after": ROW}).encode()
    changes = only(decoded([Record(0, b'{"id":1}', event)], insert, options=plain))
    assert columns(changes)["shard"] == ["7"]


def test_topics_of_one_partition_keep_their_order() -> None:
    """Records that ``route.by.field`` sends to different topics keep their order."""
    route = UNWRAP | {"route.by.field": "name"}
    records = [
        Record(place, key({"id": place}), whole_change("c", None, {"id": place, "name": name}, 100 + place))
        for place, name in enumerate(("a", "a", "b", "a"))
    ]
    found = decoded(records, route)
    assert [each.topic for each in found.of(RoutedEvents)] == ["a", "b", "a"]
    assert [piece.version.offset.tolist() for piece in found.events if isinstance(piece, Changes)] == [[0, 1], [2], [3]]


def test_errant_records_have_an_index_and_a_stage() -> None:
    """Errors of converters, transforms and envelopes have the record's index and the stage at which it failed."""
    good = whole_change("c", None, ROW, 100)
    records = [
        Record(0, b"{", good),
        Record(1, key({"id": 1}), b"{"),
        Record(2, key({"id": 1}), json.dumps({"schema": {"type": "string"}, "payload": "secret"}).encode()),
        Record(3, key({"id": 1}), whole_change("x", None, ROW, 100)),
        Record(4, key({"id": 1}), good),
        Record(5, None, None),
    ]
    found = decoded(records, UNWRAP, {"type": "Cast$Value", "spec": "id:int32"})
    assert [(each.index, each.stage) for each in found.errant] == [
        (0, Stage.KEY_CONVERTER),
        (1, Stage.VALUE_CONVERTER),
        (2, Stage.TRANSFORMATION),
        (3, Stage.TASK_PUT),
    ]
    assert "secret" not in str(found.errant[2].error)
    assert found.errant[2].error.class_name == "org.apache.kafka.connect.transforms.Cast$Value"
    assert found.skipped == 1
    assert only(found).version.offset.tolist() == [4]


def test_add_copies_every_list_of_decoded() -> None:
    """``Decoded.add`` copies every list field, the number of skipped records and the losses."""
    one, other = Decoded(), Decoded(skipped=1)
    lists = [each.name for each in fields(Decoded) if isinstance(getattr(one, each.name), list)]
    for name in lists:
        getattr(other, name).append(name)
    other.losses["cell"] = 2
    one.add(other)
    assert one == other
