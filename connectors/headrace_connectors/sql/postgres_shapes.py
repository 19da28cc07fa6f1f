"""PostgreSQL's shapes, those of PostGIS, and pgvector's vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from headrace_connectors.sql.cells import Reader
from headrace_connectors.sql.postgres_target import Choice, Target, always
from headrace_connectors.sql.postgres_text import box_ring, numbers, points, wkb_line, wkb_point, wkb_polygon


def _point(text: str) -> dict[str, Any]:
    ((x, y),) = points(text)
    return {"x": x, "y": y, "wkb": wkb_point((x, y)), "srid": None}


def _line(text: str) -> dict[str, float]:
    a, b, c = numbers(text)
    return {"a": a, "b": b, "c": c}


def _circle(text: str) -> dict[str, Any]:
    x, y, radius = numbers(text)
    return {"center": _point(f"({x!r},{y!r})"), "radius": radius}


def _shape(wkb: bytes, type_name: str, **extensions: str) -> dict[str, Any]:
    return {"wkb": wkb, "srid": None, "extensions": {"type": type_name, **extensions}}


def _shape_reader(target: Target) -> Reader:
    shapes: dict[str, Reader] = {
        "lseg": lambda text: _shape(wkb_line(points(text)), "lseg"),
        "box": lambda text: _shape(wkb_polygon(box_ring(text)), "box"),
        "path": lambda text: _shape(wkb_line(points(text)), "path", closed=str(text.startswith("(")).lower()),
        "polygon": lambda text: _shape(wkb_polygon(points(text)), "polygon"),
    }
    return shapes.get(target.kind.name, _postgis)


def _postgis(text: str) -> dict[str, Any]:
    """Parse PostGIS's EWKB in hex; the spatial reference, if any, is in its fifth to ninth byte."""
    wkb = bytes.fromhex(text)
    order: Literal["little", "big"] = "little" if wkb[0] == 1 else "big"
    has_srid = int.from_bytes(wkb[1:5], order) & 0x20000000
    return {"wkb": wkb, "srid": int.from_bytes(wkb[5:9], order) if has_srid else None}


def _sparse_vector(text: str) -> dict[str, Any]:
    """``{1:1.5,3:2}/5``."""
    pairs, _, dimensions = text.strip("{").partition("}/")
    entries = [pair.split(":") for pair in pairs.split(",") if pair]
    return {"dimensions": int(dimensions), "vector": {int(index): float(value) for index, value in entries}}


BY_SEMANTIC: Mapping[str, Choice] = {
    "Point": always(_point),
    "Line": always(_line),
    "Circle": always(_circle),
    "Geometry": _shape_reader,
    "Geography": always(_postgis),
    "DoubleVector": always(numbers),
    "FloatVector": always(numbers),
    "SparseDoubleVector": always(_sparse_vector),
}
