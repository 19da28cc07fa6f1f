"""Well-known binary, the format of geometries: OGC's, and PostGIS's extended format, which contains the SRID."""

from __future__ import annotations

import struct

_HAS_Z, _HAS_M, _HAS_SRID = 0x80000000, 0x40000000, 0x20000000
_TYPE = 0xFF
_POINT, _LINE, _POLYGON, _COLLECTION = 1, 2, 3, 7
_MULTIPLE = {4: _POINT, 5: _LINE, 6: _POLYGON}
_ORDINATE = 8
_HEAD = 5
"""The bytes of byte order and type, at the begin of every geometry."""


class MalformedGeometry(ValueError):
    """The bytes are not a geometry."""


def is_extended(wkb: bytes) -> bool:
    """Whether a geometry contains its SRID. False for bytes that are too few for a geometry."""
    return len(wkb) >= _HEAD and bool(_type(wkb) & _HAS_SRID)


def add_srid(wkb: bytes, srid: int) -> bytes:
    """Add the SRID to a plain geometry. Raises MalformedGeometry."""
    order = _order(wkb)
    return wkb[:1] + struct.pack(f"{order}Ii", _type(wkb) | _HAS_SRID, srid) + wkb[_HEAD:]


def remove_srid(wkb: bytes) -> bytes:
    order = _order(wkb)
    return wkb[:1] + struct.pack(f"{order}I", _type(wkb) & ~_HAS_SRID) + wkb[_HEAD + 4 :]


def swap_ordinates(wkb: bytes) -> bytes:
    """Swap the first two ordinates of each point of a geometry. Raises MalformedGeometry."""
    swap = _Swap(wkb)
    try:
        swap.geometry()
    except (struct.error, IndexError, RecursionError) as error:
        raise MalformedGeometry("the geometry ends too early") from error
    return bytes(swap.data[: swap.at])


def _order(wkb: bytes) -> str:
    return "<" if wkb[:1] == b"\x01" else ">"


def _type(wkb: bytes) -> int:
    if len(wkb) < _HEAD:
        raise MalformedGeometry("the geometry ends too early")
    return int(struct.unpack_from(f"{_order(wkb)}I", wkb, 1)[0])


class _Swap:
    """Walks along a copy of the bytes and exchanges the ordinates in it."""

    def __init__(self, wkb: bytes) -> None:
        self.data = bytearray(wkb)
        self.at = 0
        self._order = ">"

    def geometry(self) -> None:
        kind = self._head()
        ordinates = 2 + bool(kind & _HAS_Z) + bool(kind & _HAS_M)
        if kind & _HAS_SRID:
            self._number("i")
        base, order = kind & _TYPE, self._order
        if base not in _MULTIPLE and base != _COLLECTION:
            self._shape(base, ordinates)
            return
        # Each part has a byte order of its own. After it that of the collection is valid again.
        for _ in range(self._number("i")):
            if base == _COLLECTION:
                self.geometry()
            else:
                self._head()
                self._shape(_MULTIPLE[base], ordinates)
            self._order = order

    def _shape(self, base: int, ordinates: int) -> None:
        if base == _POINT:
            self._point(ordinates)
        elif base == _LINE:
            self._points(ordinates)
        elif base == _POLYGON:
            for _ in range(self._number("i")):
                self._points(ordinates)
        else:
            raise MalformedGeometry(f"there is no geometry of type {base}")

    def _points(self, ordinates: int) -> None:
        for _ in range(self._number("i")):
            self._point(ordinates)

    def _point(self, ordinates: int) -> None:
        first, second, end = self.at, self.at + _ORDINATE, self.at + 2 * _ORDINATE
        self.at += ordinates * _ORDINATE
        if self.at > len(self.data):
            raise IndexError
        self.data[first:end] = self.data[second:end] + self.data[first:second]

    def _head(self) -> int:
        self._order = "<" if self.data[self.at] == 1 else ">"
        self.at += 1
        return self._number("I")

    def _number(self, form: str) -> int:
        number: int = struct.unpack_from(f"{self._order}{form}", self.data, self.at)[0]
        self.at += 4
        return number
