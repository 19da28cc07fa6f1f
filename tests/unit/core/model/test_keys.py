"""Canonical row keys: each row key has exactly one text."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.model.arrow_columns import FEW
from headrace.core.model.events import Changes, KeyChanges, TableId, Versions
from headrace.core.model.keys import FLOOR_KEY, canonical_keys, in_key_order


def test_equal_keys_have_equal_texts() -> None:
    """Equal keys have equal texts, independent of decimal scale, integer width and the sign of zero."""
    narrow, wide = pa.array([Decimal("1.50")], pa.decimal128(9, 2)), pa.array([Decimal("1.5000")], pa.decimal128(12, 4))
    assert canonical_keys([narrow]) == canonical_keys([wide])
    assert canonical_keys([pa.array([7], pa.int32())]) == canonical_keys([pa.array([7], pa.int64())])
    assert canonical_keys([pa.array([-0.0])]) == canonical_keys([pa.array([0.0])])


@given(st.lists(st.tuples(st.text(), st.text()), unique=True, max_size=20))
def test_composite_keys_never_collide(keys: list[tuple[str, str]]) -> None:
    """Different composite keys have different texts, with any characters in their parts."""
    texts = canonical_keys([pa.array([a for a, _ in keys], pa.string()), pa.array([b for _, b in keys], pa.string())])
    assert len(set(texts.to_pylist())) == len(keys)


@given(
    st.tuples(st.text(), st.text(), st.text()),
    st.permutations(["a", "b", "c"]),
    st.permutations(["a", "b", "c"]),
)
def test_a_table_keeps_the_order_of_its_key(values: tuple[str, ...], now: list[str], ever: list[str]) -> None:
    """A primary key that is declared again with its columns in another order keeps the text of every row."""
    cells = {name: pa.array([value], pa.string()) for name, value in zip("abc", values, strict=True)}
    (before,), (after,) = (canonical_keys([cells[name] for name in order]).to_pylist() for order in (now, ever))
    zero = np.zeros(1, np.int64)
    version = Versions("t", np.array([b""]), zero.astype(np.int32), zero, zero)
    operation, key = zero.astype(np.uint8), pa.array([before])
    changes = Changes(TableId("", "", "", "t"), tuple(now), operation, key, version, zero, (), KeyChanges({0: before}))
    turned = in_key_order(changes, ever)
    assert (turned.key_fields, turned.key.to_pylist(), turned.key_changes.old_keys) == (
        tuple(ever),
        [after],
        {0: after},
    )
    assert in_key_order(changes, ["a", "b"]) is in_key_order(changes, []) is changes


@given(st.one_of(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.lists(st.none() | st.text())))
def test_a_key_has_the_same_text_among_few_and_among_many(keys: list[int | str | None]) -> None:
    """The number of events that are decoded together has no influence."""
    column = pa.array(keys, pa.int64() if any(isinstance(key, int) for key in keys) else pa.string())
    copies = FEW // max(1, len(keys)) + 1
    many = canonical_keys([pa.concat_arrays([column] * copies)])
    assert many.to_pylist() == canonical_keys([column]).to_pylist() * copies


def test_an_empty_text_does_not_have_the_floors_key() -> None:
    """The key of an empty text differs from the ledger's floor key."""
    assert canonical_keys([pa.array([""])])[0].as_py() != FLOOR_KEY


def test_a_null_part_makes_a_null_key() -> None:
    """A composite key with a null part is null, which the decoder refuses."""
    assert canonical_keys([pa.array([1, None]), pa.array(["a", "b"])]).null_count == 1


def test_texts_of_instants_dates_and_bytes() -> None:
    """Instants and dates become their stored numbers, and bytes become hexadecimal digits."""
    instant = pa.array([5], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    assert canonical_keys([instant])[0].as_py() == "=5"
    assert canonical_keys([pa.array([3], pa.int32()).view(pa.date32())])[0].as_py() == "=3"
    assert canonical_keys([pa.array([b"\x00\xff"])])[0].as_py() == "=00ff"
