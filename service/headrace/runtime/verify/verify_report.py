"""The output of `headrace verify`: progress on a terminal, differences by table, key and column, and a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TextIO

from headrace.core.verify.verification import Verdict, Where
from headrace.runtime.verify.table_verifier import Difference, cell_text

EQUAL, DIFFERENT, NOT_COMPARED = 0, 1, 2

_REMARKS = {
    Verdict.DIFFERENT: "",
    Verdict.UNPROVEN: " (not proven: the lake did not pass the source's position in time)",
    Verdict.UNSETTLED: " (not decided: the row changed at every comparison; compare again)",
}


class Report:
    """Prints and counts; ``finish`` returns the exit status."""

    def __init__(self, out: TextIO, err: TextIO, *, show_values: bool = False) -> None:
        self._out = out
        self._err = err
        self._live = err.isatty()
        self._show_values = show_values
        self._table = ""
        self._here: Counter[str] = Counter()
        self._all: Counter[str] = Counter()

    def begin(self, table: str) -> None:
        """Begin the comparison of a table."""
        self._table = table
        self._here.clear()

    def progress(self, side: str, rows: int) -> None:
        """Print the number of rows of a side that have been read."""
        if self._live:
            self._err.write(f"\r{self._table}: {rows:,} rows of the {side} read\x1b[K")
            self._err.flush()

    def printed(self, differences: Iterator[Difference]) -> Iterator[Difference]:
        """Print and yield the differences; rows that a later change explains are only counted."""
        for difference in differences:
            if difference.verdict is Verdict.EXPLAINED:
                self._here["explained"] += 1
                continue
            self._here["different"] += 1
            self._print(f"{self._table} {_key(difference)}: {_what(difference)}{_REMARKS[difference.verdict]}")
            for column, (source, lake) in difference.values.items() if self._show_values else ():
                self._print(f"    {column}: source {source}, lake {lake}")
            yield difference

    def repaired(self, difference: Difference) -> None:
        """Print and count a repaired difference."""
        self._here["repaired"] += 1
        self._print(f"{self._table} {_key(difference)}: repaired")

    def failed(self, reason: str) -> None:
        """Print that the table could not be compared."""
        self._here["failed"] = 1
        self._print(f"{self._table}: not compared: {reason}")
        self._all.update(self._here)

    def end(self, rows: int, only_in_lake: Sequence[str]) -> None:
        """Print the result of the table's comparison."""
        left = self._here["different"] - self._here["repaired"]
        verdict = f"{left:,} differ" if left else "equal"
        notes = [f"{self._here[name]:,} {name}" for name in ("repaired", "explained") if self._here[name]]
        if only_in_lake:
            notes.append(f"not compared, because the source lacks them: {', '.join(only_in_lake)}")
        self._print(f"{self._table}: {rows:,} rows, {verdict}" + (f" ({'; '.join(notes)})" if notes else ""))
        self._all.update(self._here)
        self._all["tables"] += 1

    def finish(self) -> int:
        """Return the exit status."""
        if self._all["failed"]:
            return NOT_COMPARED
        if not self._all["tables"]:
            self._print("no tables: none of the connector's topics exists yet")
            return NOT_COMPARED
        return DIFFERENT if self._all["different"] > self._all["repaired"] else EQUAL

    def _print(self, line: str) -> None:
        if self._live:
            self._err.write("\r\x1b[K")
            self._err.flush()
        print(line, file=self._out, flush=True)


def _key(difference: Difference) -> str:
    return ", ".join(f"{name}={cell_text(difference.key[name][0])}" for name in difference.key.column_names)


def _what(difference: Difference) -> str:
    if difference.where is Where.BOTH:
        return f"{', '.join(difference.columns)} {'differs' if len(difference.columns) == 1 else 'differ'}"
    if difference.where is Where.TWICE:
        return f"stored {difference.where}; remove one of the rows by hand"
    return f"only in the {difference.where}"
