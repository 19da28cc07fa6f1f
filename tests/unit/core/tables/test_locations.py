"""Properties that would put a table's files somewhere else."""

from __future__ import annotations

import pytest

from headrace.core.tables.locations import location_problems

PATHS = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path", "location")


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    ("warehouse", "place"),
    [
        ("/data/lake", "/etc"),
        ("/data/lake", "/data/lake"),
        ("/data/lake", "/data/lakes/x"),
        ("/data/lake", "/data/lake/../x"),
        ("/data/lake", "data/lake/x"),
        ("/data/lake", "s3://bucket/data/lake/x"),
        ("/data/lake", ""),
        ("s3a://bucket/lake", "s3a://other/lake/x"),
        ("s3a://bucket/lake", "s3://bucket/lake/x"),
        ("s3a://bucket/lake", "/lake/x"),
        (None, "x/../../etc"),
        (None, "/a/../etc"),
    ],
)
def test_places_outside_of_the_warehouse_are_refused(name: str, warehouse: str | None, place: str) -> None:
    """Another server, another folder, a relative place, or one that climbs."""
    assert list(location_problems({name: place}, warehouse)) == [name]


@pytest.mark.parametrize(
    ("warehouse", "place"),
    [
        ("/data/lake", "/data/lake/x/y"),
        ("/data/lake/", "file:///data/lake/x"),
        ("/", "/x"),
        ("s3a://bucket/lake", "s3a://bucket/lake/x"),
        (None, "s3://anywhere/x"),
    ],
)
def test_places_in_the_warehouse_are_accepted(warehouse: str | None, place: str) -> None:
    """With or without the scheme of local files."""
    assert location_problems({"write.data.path": place}, warehouse) == {}


def test_other_properties_are_free() -> None:
    """Also those of a column that is called like a place."""
    names = ("write.metadata.metrics.column.path", "write.object-storage.partitioned-paths", "write.format.default")
    assert location_problems(dict.fromkeys(names, "full"), "/data/lake") == {}


def test_no_class_chooses_the_places() -> None:
    """It could write anywhere."""
    assert location_problems({"write.location-provider.impl": "a.B"}, None)
