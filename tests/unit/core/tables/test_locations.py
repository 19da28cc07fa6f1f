"""Table properties may not place files outside of the warehouse."""

from __future__ import annotations

import pytest

from headrace.core.tables.naming import location_problems

PATHS = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path", "location")


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    ("warehouse", "location_value"),
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
def test_locations_outside_of_the_warehouse_are_refused(name: str, warehouse: str | None, location_value: str) -> None:
    """A location on another server or in another folder, a relative path, and a path with ``..`` are refused."""
    assert list(location_problems({name: location_value}, warehouse)) == [name]


@pytest.mark.parametrize(
    ("warehouse", "location_value"),
    [
        ("/data/lake", "/data/lake/x/y"),
        ("/data/lake/", "file:///data/lake/x"),
        ("/", "/x"),
        ("s3a://bucket/lake", "s3a://bucket/lake/x"),
        (None, "s3://anywhere/x"),
    ],
)
def test_locations_in_the_warehouse_are_accepted(warehouse: str | None, location_value: str) -> None:
    """A location below the warehouse is accepted, with or without ``file://``."""
    assert location_problems({"write.data.path": location_value}, warehouse) == {}


def test_other_properties_are_accepted() -> None:
    """Properties that set no location are accepted, also if a column in their name is called "path"."""
    names = ("write.metadata.metrics.column.path", "write.object-storage.partitioned-paths", "write.format.default")
    assert location_problems(dict.fromkeys(names, "full"), "/data/lake") == {}


def test_a_location_provider_is_refused() -> None:
    """A location provider class is refused, because it could write anywhere."""
    assert location_problems({"write.location-provider.impl": "a.B"}, None)
