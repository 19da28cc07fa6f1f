"""The index of a ledger finds what a dictionary of its entries contains, in a few bytes of memory for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.model.errors import Retriable
from headrace.core.model.events import RowVersion, succeed
from headrace_connectors.lakehouse import tombstone_index
from headrace_connectors.lakehouse.schema import VERSION_COLUMNS
from headrace_connectors.lakehouse.tombstone_index import TombstoneIndex, fingerprints

Entry = tuple[str, RowVersion]


def version(position: int, topic: str = "shop", partition: int = 0) -> RowVersion:
    return RowVersion(b"00000.%020d" % position, topic, partition, position, position)


def rows_of(entries: Sequence[Entry]) -> pa.Table:
    """Return entries as the ledger stores them."""
    versions = [entry[1] for entry in entries]
    columns = [
        [entry[0] for entry in entries],
        [each.position.decode() or None for each in versions],
        [each.topic for each in versions],
        [each.partition for each in versions],
        [each.offset for each in versions],
        [each.source_time for each in versions],
    ]
    return pa.table(columns, pa.schema([("key", pa.string()), *VERSION_COLUMNS]))


def merged(entries: Sequence[Entry]) -> Mapping[str, RowVersion]:
    result: dict[str, RowVersion] = {}
    for key, entry in entries:
        result[key] = succeed(entry, result.get(key))
    return result


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a few rows, so that there are many of them in the file."""
    monkeypatch.setattr(tombstone_index, "SEGMENT_ROWS", 100)
    monkeypatch.setattr(tombstone_index, "BLOCK_ROWS", 7)


def some_entries(count: int) -> list[Entry]:
    """Return entries of fewer keys than entries, in three topics, some without a position."""
    random = np.random.default_rng(7)
    keys, positions = random.integers(0, count // 2, count).tolist(), random.permutation(count).tolist()
    entries = [
        (f"={key}" * (1 + key % 9), version(place, f"t{key % 3}", key % 4))
        for key, place in zip(keys, positions, strict=True)
    ]
    return [(key, RowVersion(b"", *_rest(each)) if each.offset % 10 == 0 else each) for key, each in entries]


def _rest(each: RowVersion) -> tuple[str, int, int, int]:
    return each.topic, each.partition, each.offset, each.source_time


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("at_once", [1, 13, 1000])
def test_an_index_finds_what_a_dictionary_contains(at_once: int) -> None:
    """However the entries are added, each key has its entries merged, and other keys have none."""
    entries, index = some_entries(1000), TombstoneIndex()
    for begin in range(0, len(entries), at_once):
        index.add([rows_of(entries[begin : begin + at_once])])
    expected = merged(entries)
    assert index.all() == expected
    assert index.find(pa.array([*expected, *(f"={key}?" for key in range(500)), ""])) == expected
    assert index.find(pa.array(["=1"])).keys() == {"=1"} & expected.keys()
    assert len(index) == len(entries)


@pytest.mark.usefixtures("small")
def test_the_text_of_a_key_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all keys have the same fingerprint, the entries of other keys are not returned."""
    monkeypatch.setattr(tombstone_index, "fingerprints", lambda keys: np.full(len(keys), 7, np.uint32))
    entries, index = some_entries(300), TombstoneIndex()
    index.add([rows_of(entries)])
    expected = merged(entries)
    wanted = [*list(expected)[::5], "=absent"]
    assert index.find(pa.array(wanted)) == {key: expected[key] for key in wanted[:-1]}


def test_entries_of_the_table_are_separate() -> None:
    """Floor, defaults, origins and restarts are few, and are in memory."""
    of_table = {"": version(1), '+["a", "text", "b"]': version(2), '*["read", []]': version(3), "~[]": version(4)}
    index = TombstoneIndex()
    index.add([rows_of([*of_table.items(), ("=1", version(5)), ("2:ab,1:c,", version(6)), ("-onto:1:=1", version(7))])])
    assert index.table_entries == of_table
    keys = pa.array(["", "=1", "2:ab,1:c,", "-onto:1:=1"])
    assert index.find(keys) == {"=1": version(5), "2:ab,1:c,": version(6), "-onto:1:=1": version(7)}


@pytest.mark.usefixtures("small")
def test_indexes_are_joined() -> None:
    """An index takes the entries of another one, of other topics, in memory and in its file."""
    entries = some_entries(500)
    index, other = TombstoneIndex(), TombstoneIndex()
    index.add([rows_of(entries[:50])])
    other.add([rows_of([*entries[50:], ("", version(9))])])
    index.add_all_of(other)
    del other
    assert index.all() == {**merged(entries), "": version(9)}


def test_fingerprints_depend_on_the_texts_alone() -> None:
    """A slice of an array has the same fingerprints; texts that differ in one byte have different ones."""
    texts = ["", "a", "aa", "a\0", "=12345678", "=12345679", "ä" * 100, "ä" * 100 + "b", "b" + "ä" * 100, "x" * 10_000]
    prints = fingerprints(pa.array(texts)).tolist()
    assert len(set(prints)) == len(texts)
    assert fingerprints(pa.array(["before", *texts, "behind"]).slice(1, len(texts))).tolist() == prints
    assert [fingerprints(pa.array([text]))[0] for text in texts] == prints
    numbers = fingerprints(pa.array([f"={number}" for number in range(100_000)]))
    assert len(np.unique(numbers)) > 99_990
    assert np.bincount(numbers >> 24, minlength=256).min() > 250


def test_a_tombstone_takes_a_few_bytes_of_memory() -> None:
    """Rows of complete segments are in a file: memory has 4 bytes for the fingerprint, and the filter."""
    index, count = TombstoneIndex(), 4 * tombstone_index.SEGMENT_ROWS

    def parts() -> Iterator[pa.Table]:
        for begin in range(0, count, 1 << 17):
            numbers = pa.array(range(begin, min(begin + (1 << 17), count)))
            yield pa.Table.from_arrays(
                [
                    pa.array([f"={number}" for number in numbers.to_pylist()]),
                    pa.array([f"00000.{number:020}" for number in numbers.to_pylist()]),
                    pa.repeat("shop", len(numbers)),
                    numbers.cast(pa.int32()),
                    numbers,
                    numbers.view(pa.timestamp("us", tz="UTC")),
                ],
                ["key", *VERSION_COLUMNS.names],
            )

    index.add(parts())
    assert index.nbytes < 8 * count
    wanted = [7, 300_000, count - 1]
    keys = pa.array([f"={number}" for number in [*wanted, count, count + 1]])
    assert index.find(keys) == {f"={number}": version(number, partition=number) for number in wanted}


@pytest.mark.usefixtures("small")
def test_a_folder_without_space_is_an_error_that_is_retried(tmp_path: Path) -> None:
    """The error names the folder, and no entry is missing afterwards."""
    index, entries = TombstoneIndex(tmp_path / "missing"), some_entries(200)
    index.add([rows_of(entries[:90])])
    with pytest.raises(Retriable, match="missing: a table's tombstones cannot be written"):
        index.add([rows_of(entries[90:])])
    assert index.all() == merged(entries)
