"""The probe finds out which columns of a table each transform copies, as the decoder of real records shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings.records import RecordedRecord
from support.records.envelopes import key, whole_change

from headrace.core.decode.decoded import RoutedEvents
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.flattened import MetadataNames
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import Changes, TableId
from headrace.core.model.schema import Field, Schema
from headrace.transforms.column_probe import ColumnProbe, Form, TransformedTable, routed_topic, transformed_table
from headrace.transforms.decoder import TransformingDecoder
from headrace.transforms.registry import chain, transforms

TOPIC = "shop.public.items"
TABLE = TableId("shop", "shop", "public", "items")
TEXT = Schema("string", optional=True)
GEOMETRY = Schema(
    "struct",
    True,
    "io.debezium.data.geometry.Geometry",
    1,
    fields=(Field("wkb", Schema("bytes")), Field("srid", Schema("int32", optional=True))),
)
TYPES = {
    "id": Schema("int64"),
    "name": TEXT,
    "price": Schema("double", optional=True),
    "sold": Schema("boolean", optional=True),
    "taken": Schema("int64", True, "io.debezium.time.MicroTimestamp", 1),
    "zoned": Schema("string", True, "io.debezium.time.ZonedTimestamp", 1),
    "place": GEOMETRY,
    "vector": Schema("array", True, "io.debezium.data.DoubleVector", 1, items=Schema("double")),
}
ROW = Schema("struct", fields=tuple(Field(name, schema) for name, schema in TYPES.items()))
SAME = {name: name for name in TYPES}
UNWRAP = {
    "type": "ExtractNewRecordState",
    "replace.null.with.default": "false",
    "delete.tombstone.handling.mode": "rewrite",
}
TOMBSTONES = {**UNWRAP, "delete.tombstone.handling.mode": "tombstone"}
Links = Sequence[dict[str, str]]


def configured(*links: dict[str, str]) -> dict[str, str]:
    """Return the configuration of a chain of transforms, each given by its options."""
    properties = {"transforms": ",".join(f"t{place}" for place in range(len(links)))}
    for place, options in enumerate(links):
        properties |= {f"transforms.t{place}.{name}": value for name, value in options.items()}
    return properties


def probed(
    *links: dict[str, str],
    form: Form = Form.ENVELOPES,
    options: EnvelopeOptions | None = None,
    columns: Sequence[str] = ("id",),
    defaulted: Sequence[str] = (),
    **others: str,
) -> TransformedTable:
    made = chain(configured(*links) | others)
    probe = ColumnProbe(made, TOPIC, TABLE, ROW, options or EnvelopeOptions(), defaulted)
    found = probe.result(columns, form)
    if found.problem:
        raise ConfigError(f"{probe.name}: {found.problem}")
    return found


def without(*names: str) -> dict[str, str]:
    return {name: column for name, column in SAME.items() if name not in names}


OF_ROWS: dict[str, tuple[Links, Mapping[str, str], Sequence[str]]] = {
    "nothing": ([UNWRAP], SAME, ()),
    "ReplaceField renames": (
        [UNWRAP, {"type": "ReplaceField$Value", "renames": "name:title,price:name", "exclude": "sold"}],
        {**without("name", "price", "sold"), "title": "name", "name": "price"},
        (),
    ),
    "ReplaceField includes": (
        [UNWRAP, {"type": "ReplaceField$Value", "include": "id,name"}],
        {"id": "id", "name": "name"},
        (),
    ),
    "MaskField": (
        [UNWRAP, {"type": "MaskField$Value", "fields": "name,price"}],
        without("name", "price"),
        ("name", "price"),
    ),
    "MaskField with a text": (
        [UNWRAP, {"type": "MaskField$Value", "fields": "name", "replacement": "x"}],
        without("name"),
        ("name",),
    ),
    "InsertField": (
        [UNWRAP, {"type": "InsertField$Value", "topic.field": "origin", "static.field": "kind", "static.value": "a"}],
        SAME,
        ("origin", "kind"),
    ),
    "InsertField over a column": (
        [
            UNWRAP,
            {"type": "ReplaceField$Value", "exclude": "name"},
            {"type": "InsertField$Value", "offset.field": "name"},
        ],
        without("name"),
        ("name",),
    ),
    "Cast to another type": ([UNWRAP, {"type": "Cast$Value", "spec": "price:string"}], without("price"), ("price",)),
    "Cast to the same type": (
        [UNWRAP, {"type": "Cast$Value", "spec": "name:string,price:float64"}],
        without("name", "price"),
        ("name", "price"),
    ),
    "Cast that fails for many values": (
        [UNWRAP, {"type": "Cast$Value", "spec": "name:int32"}],
        without("name"),
        ("name",),
    ),
    "TimestampConverter": (
        [UNWRAP, {"type": "TimestampConverter$Value", "field": "taken", "target.type": "unix"}],
        without("taken"),
        ("taken",),
    ),
    "TimestampConverter of text": (
        [UNWRAP, {"type": "TimestampConverter$Value", "field": "name", "target.type": "unix", "format": "yyyy"}],
        without("name"),
        ("name",),
    ),
    "Flatten": ([UNWRAP, {"type": "Flatten$Value"}], without("place"), ("place.wkb", "place.srid")),
    "HoistField": ([UNWRAP, {"type": "HoistField$Value", "field": "all"}], {"id": "id"}, ("all",)),
    "ExtractField": ([{"type": "ExtractField$Value", "field": "after"}], SAME, ()),
    "SetSchemaMetadata": ([UNWRAP, {"type": "SetSchemaMetadata$Value", "schema.name": "other.Value"}], SAME, ()),
    "HeaderFrom": (
        [UNWRAP, {"type": "HeaderFrom$Value", "fields": "name", "headers": "name", "operation": "move"}],
        without("name"),
        (),
    ),
    "headers": (
        [{"type": "InsertHeader", "header": "h", "value.literal": "1"}, {"type": "DropHeaders", "headers": "h"}],
        SAME,
        (),
    ),
    "ExtractNewRecordState adds fields": (
        [{**UNWRAP, "add.fields": "op,table:of,source.schema"}],
        SAME,
        ("__of",),
    ),
    "ExtractChangedRecordState": ([{"type": "ExtractChangedRecordState", "header.changed.name": "c"}], SAME, ()),
    "SchemaChangeEventFilter": (
        [{"type": "SchemaChangeEventFilter", "schema.change.event.exclude.list": "CREATE"}],
        SAME,
        (),
    ),
    "TimezoneConverter": (
        [{"type": "TimezoneConverter", "converted.timezone": "+02:00"}],
        without("taken", "zoned"),
        ("taken", "zoned"),
    ),
    "TimezoneConverter of another table": (
        [{"type": "TimezoneConverter", "converted.timezone": "+02:00", "include.list": "source:orders:taken"}],
        SAME,
        (),
    ),
    "TimezoneConverter of one column": (
        [{"type": "TimezoneConverter", "converted.timezone": "+02:00", "include.list": "source:items:zoned"}],
        without("zoned"),
        ("zoned",),
    ),
    "SwapGeometryCoordinates": ([{"type": "SwapGeometryCoordinates"}], without("place", "vector"), ("place", "vector")),
    "GeometryFormatTransformer": ([{"type": "GeometryFormatTransformer"}], without("place"), ("place",)),
    "VectorToJsonConverter": (
        [UNWRAP, {"type": "VectorToJsonConverter"}],
        without("place", "vector"),
        ("place", "vector"),
    ),
    "FieldNameTransformation": (
        [{"type": "FieldNameTransformation", "column.naming.style": "UPPER_CASE"}],
        {name.upper(): name for name in TYPES},
        (),
    ),
}


@pytest.mark.parametrize("case", OF_ROWS)
def test_columns_that_a_transform_copies(case: str) -> None:
    """Only copies are compared; all other columns of the rows are named."""
    links, sources, changed = OF_ROWS[case]
    made = probed(*links)
    assert made.sources == sources
    assert set(made.changed) == set(changed)
    assert made.key == tuple(name for name, column in sources.items() if column == "id")


ROUTERS: dict[str, tuple[dict[str, str], str]] = {
    "RegexRouter": ({"type": "RegexRouter", "regex": "(.*)\\.public\\.(.*)", "replacement": "$2"}, "items"),
    "ByLogicalTableRouter": (
        {
            "type": "ByLogicalTableRouter",
            "topic.regex": "(.*)\\.public\\.(.*)",
            "topic.replacement": "$2",
            "key.enforce.uniqueness": "false",
        },
        "items",
    ),
    "CollectionNameTransformation": (
        {"type": "CollectionNameTransformation", "collection.naming.style": "UPPER_CASE"},
        "SHOP.PUBLIC.ITEMS",
    ),
}


@pytest.mark.parametrize("case", ROUTERS)
def test_routers_copy_every_column(case: str) -> None:
    """The rows get another topic, which also follows without the schema of the table."""
    link, topic = ROUTERS[case]
    made = probed(link)
    assert (made.topic, made.sources, made.changed) == (topic, SAME, ())
    assert (
        routed_topic(
            chain(
                configured(
                    UNWRAP, {"type": "HeaderFrom$Value", "fields": "x", "headers": "x", "operation": "copy"}, link
                )
            ),
            TOPIC,
        )
        == topic
    )


def filtered(negate: bool, **predicate: str) -> dict[str, str]:
    properties = {f"predicates.p.{name}": value for name, value in predicate.items()}
    return {
        "transforms": "f",
        "transforms.f.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.f.predicate": "p",
        "transforms.f.negate": str(negate).lower(),
        "predicates": "p",
        **properties,
    }


def test_a_filter_of_other_topics_copies_every_column() -> None:
    """A predicate by topic, or one of tombstones behind the envelopes that delete, drops no change of a row."""
    for properties in (
        filtered(False, type="TopicNameMatches", pattern="other"),
        filtered(False, type="RecordIsTombstone"),
    ):
        assert probed(**properties).sources == SAME


REFUSED: dict[str, tuple[Links, str]] = {
    "a changed key": ([{"type": "Cast$Key", "spec": "id:string"}], "give the key of a row, or of its delete"),
    "a changed key of rows": ([UNWRAP, {"type": "Cast$Value", "spec": "id:string"}], r"key column\(s\) id"),
    "a masked key": ([UNWRAP, {"type": "MaskField$Key", "fields": "id"}], "the key of a row"),
    "several tables in one": (
        [{"type": "ByLogicalTableRouter", "topic.regex": "(.*)s", "topic.replacement": "$1"}],
        "__dbz__physicalTableIdentifier",
    ),
    "deletes that are dropped": ([{**UNWRAP, "delete.tombstone.handling.mode": "drop"}], "drop its deletes"),
    "deletes on which a transform fails": (
        [TOMBSTONES, {"type": "MaskField$Value", "fields": "name"}],
        "drop its deletes, fail on them",
    ),
    "deletes without their key": ([TOMBSTONES, {"type": "ValueToKey", "fields": "id"}], "drop its deletes"),
    "a key of another column": (
        [{**UNWRAP}, {"type": "ValueToKey", "fields": "name"}],
        "the key of a row, or of its delete",
    ),
    "rows that it cannot transform": ([UNWRAP, {"type": "ExtractField$Value", "field": "nothing"}], "cannot transform"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_cannot_be_matched_are_refused(case: str) -> None:
    """The error names the table and the cause."""
    links, text = REFUSED[case]
    with pytest.raises(ConfigError, match=rf"public\.items: .*{text}"):
        probed(*links)


def test_a_key_with_another_name_is_a_column_of_the_row() -> None:
    """The decoder adds the key to the row, which then has its cell twice."""
    made = probed(UNWRAP, {"type": "ReplaceField$Key", "renames": "id:number"})
    assert (made.key, made.sources) == (("number",), {**SAME, "number": "id"})


def test_dropped_rows_are_refused() -> None:
    """A filter may drop all rows of a topic."""
    properties = filtered(True, type="TopicNameMatches", pattern="other")
    with pytest.raises(ConfigError, match="drop all of its rows"):
        probed(**properties)
    assert routed_topic(chain(properties), TOPIC) is None


VARYING: dict[str, dict[str, str]] = {
    "TimestampRouter": configured({"type": "TimestampRouter"}),
    "HeaderToValue": configured({"type": "HeaderToValue", "headers": "h", "fields": "f", "operation": "copy"}),
    "route.by.field": configured({**UNWRAP, "route.by.field": "name"}),
    "drop.fields.header.name": configured({**UNWRAP, "drop.fields.header.name": "h"}),
    "HasHeaderKey": filtered(False, type="HasHeaderKey", name="h"),
}


@pytest.mark.parametrize("case", VARYING)
def test_transforms_that_look_at_single_records_are_named(case: str) -> None:
    """Values, headers or timestamps of a record decide what becomes of it: synthetic records prove nothing."""
    [reason] = chain(VARYING[case]).varying
    assert case in reason


def test_every_class_of_the_package_has_a_case() -> None:
    """A class that is added has to be proven as well: with its copies, or as one that varies."""
    tested = {link["type"] for links, *_ in (*OF_ROWS.values(), *REFUSED.values()) for link in links}
    tested |= {link["type"] for link, _ in ROUTERS.values()} | VARYING.keys() | {"Filter", "ToLogicalTopicRouter"}
    names = {
        plugin.simple_name for name, plugin in transforms().items() if name.startswith(("org.apache", "io.debezium"))
    }
    assert {name.partition("$")[0] for name in names} <= {name.partition("$")[0] for name in tested}


def test_nulls_of_every_type_may_become_defaults() -> None:
    """Debezium gives no column of structs a default."""
    nullable = [name for name, schema in TYPES.items() if schema.optional]
    unwrap = {**UNWRAP, "replace.null.with.default": "true"}
    assert probed(unwrap, defaulted=nullable).sources == {"id": "id", "place": "place"}


@pytest.mark.parametrize("replaces", [True, False])
def test_nulls_that_become_defaults_exclude_their_column(replaces: bool) -> None:
    """A column that accepts NULL and has a default is no copy behind ``replace.null.with.default=true``."""
    unwrap = {**UNWRAP, "delete.tombstone.handling.mode": "rewrite", "replace.null.with.default": str(replaces).lower()}
    made = probed(unwrap, defaulted=["name"])
    assert made.changed == (("name",) if replaces else ())
    assert made.sources == (without("name") if replaces else SAME)


def test_records_without_schemas() -> None:
    """Their rows have no types; what is copied follows all the same."""
    options = EnvelopeOptions(key_schemas=False, value_schemas=False)
    router, _ = ROUTERS["RegexRouter"]
    assert probed(router, options=options).sources == SAME
    mask = {"type": "MaskField$Value", "fields": "name"}
    made = probed(mask, form=Form.ROWS, options=options)
    assert (made.sources, made.changed) == (without("name"), ("name",))


def both(*links: dict[str, str], stored: Sequence[str], stored_key: Sequence[str] = ("id",)) -> TransformedTable:
    probe = ColumnProbe(chain(configured(*links)), TOPIC, TABLE, ROW, EnvelopeOptions())
    return transformed_table(probe, ["id"], stored_key, stored)


def test_the_lake_table_shows_the_form_of_the_records() -> None:
    """A rename applies to rows that a transform at the source has made, and not to envelopes, which lack the column."""
    rename = {"type": "ReplaceField$Value", "renames": "name:title"}
    assert both(rename, stored=list(TYPES)).sources == SAME
    renamed = {**without("name"), "title": "name"}
    assert both(rename, stored=[*without("name"), "title"]).sources == renamed


def test_a_column_that_only_one_form_copies_is_not_compared() -> None:
    """A mask of a column applies to rows only, and both forms give the same columns: it may be masked."""
    made = both({"type": "MaskField$Value", "fields": "name"}, stored=list(TYPES))
    assert (made.sources, made.changed) == (without("name"), ("name",))


def test_a_mask_that_may_apply_excludes_its_column() -> None:
    """Deletes of rows do not pass this chain, but those of envelopes do. A repair must not show what may be masked."""
    mask = {"type": "MaskField$Value", "fields": "name"}
    drop = {"type": "ReplaceField$Value", "exclude": "__deleted"}
    made = both(mask, drop, stored=list(TYPES))
    assert (made.sources, made.changed) == (without("name"), ("name",))


def test_the_key_of_the_lake_table_counts() -> None:
    """The source connector may have another key than the table (message.key.columns)."""
    rename = {"type": "FieldNameTransformation", "column.naming.style": "UPPER_CASE"}
    assert both(rename, stored=[name.upper() for name in TYPES], stored_key=["NAME", "ID"]).key == ("NAME", "ID")
    with pytest.raises(ConfigError, match="the lake table has the key other"):
        both(rename, stored=[name.upper() for name in TYPES], stored_key=["other"])


# -- a law: the decoder of real records --------------------------------------------------------------------------------

CELLS = {"id": 1, "name": "n", "price": 1.5, "sold": True, "note": "t"}
NAMES = st.sampled_from([*CELLS, "a", "b"])
LINKS = st.one_of(
    st.dictionaries(NAMES, NAMES, min_size=1, max_size=2).map(
        lambda renames: {"type": "ReplaceField$Value", "renames": ",".join(f"{a}:{b}" for a, b in renames.items())}
    ),
    st.sets(NAMES, min_size=1, max_size=2).map(
        lambda names: {"type": "ReplaceField$Value", "exclude": ",".join(sorted(names - {"id"}))}
    ),
    NAMES.map(lambda name: {"type": "InsertField$Value", "static.field": name, "static.value": "i"}),
    NAMES.map(lambda name: {"type": "MaskField$Value", "fields": name}),
    NAMES.map(lambda name: {"type": "HoistField$Value", "field": name}),
    st.just({"type": "Flatten$Value"}),
    st.sampled_from(["UPPER_CASE", "DEFAULT"]).map(
        lambda style: {"type": "FieldNameTransformation", "column.naming.style": style}
    ),
    st.just({"type": "RegexRouter", "regex": "shop.(.*)", "replacement": "$1"}),
    st.just(UNWRAP),
)


@given(st.lists(LINKS, max_size=5), st.booleans())
def test_a_decoded_record_has_the_columns_that_the_probe_finds(links: list[dict[str, str]], unwraps: bool) -> None:
    """For every chain that is not refused, columns, key and topic are those of a real record, and copies its cells."""
    wraps = ("HoistField$Value", "Flatten$Value")  # of an envelope: the rows then have the fields of its source block
    links = [UNWRAP, *links] if unwraps else [link for link in links if link["type"] not in wraps]
    kinds = {int: "int64", str: "string", float: "double", bool: "boolean"}
    row = Schema("struct", fields=tuple(Field(name, Schema(kinds[type(cell)], True)) for name, cell in CELLS.items()))
    made = chain(configured(*links))
    try:
        found = ColumnProbe(made, TOPIC, TABLE, row, EnvelopeOptions()).result(["id"], Form.ENVELOPES)
    except ConfigError:
        return
    if found.problem:
        return
    records = [RecordedRecord(TOPIC, 0, 0, 0, key({"id": 1}), whole_change("c", None, CELLS, 100))]
    decoded = TransformingDecoder(TOPIC, EnvelopeOptions(added=MetadataNames()), made).decode(records)
    [changes] = decoded.events
    assert isinstance(changes, Changes)
    cells: dict[str, Any] = {column.name: column.values.to_pylist()[0] for column in changes.columns}
    assert cells.keys() == found.names
    assert changes.key_fields == found.key
    assert [each.topic for each in decoded.of(RoutedEvents)] == [found.topic]
    assert {name: cells[name] for name in found.sources} == {n: CELLS[column] for n, column in found.sources.items()}
    constants = {"i", "", 0, "false"}  # of masks, insertions and __deleted
    for name in found.changed:
        assert isinstance(cells[name], dict) or cells[name] in constants
