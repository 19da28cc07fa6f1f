"""The batched SELECT of reselect for Oracle, as text (``reselect.md`` section 7.3). Pure: names in, SQL out.

The keys are a derived table of binds, a row of DUAL each, with an ordinal that assigns an answer to its request. The
number of rows is padded to one of ``SLOTS``, so that a table and column set need few statements; unused rows have null
keys, which match nothing. No key and no SCN is ever a literal, because the server would keep a cursor for each
(DBZ-7479).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_connectors.sql.query import MASK_BITS, mask_count, quoted

SLOTS = (1, 8, 64, 512)
"""Numbers of keys per statement; more keys need several statements."""
SCN = "scn"
"""The name of the bind with the SCN."""


@dataclass(frozen=True, slots=True)
class KeyBind:
    """How one key column is compared: its name, and the SQL that converts a bind to the column's type."""

    name: str
    template: str


def slots_for(keys: int) -> int:
    """Return the smallest number of slots for ``keys``, or the largest there is."""
    return next((size for size in SLOTS if size >= keys), SLOTS[-1])


def select_rows(
    table: tuple[str, str], key: Sequence[KeyBind], cells: Sequence[str], slots: int, *, as_of_scn: bool
) -> str:
    """Return the SELECT of ``cells`` (``cell_expression``) for up to ``slots`` keys.

    Binds: ``key_bind`` and ``need_bind`` for each slot, and SCN if ``as_of_scn``. The result contains the ordinal, from
    1, and the cells. Cells that a row does not need are null, and their large objects are not read.
    """
    matches = [f"t.{quoted(part.name)} = k.k{number}" for number, part in enumerate(key, 1)]
    wanted = [
        f"CASE WHEN BITAND(k.need{number // MASK_BITS + 1}, {1 << number % MASK_BITS}) <> 0 THEN {cell} END"
        for number, cell in enumerate(cells)
    ]
    source = f"{quoted(*table)}{f' AS OF SCN :{SCN}' if as_of_scn else ''} t"
    rows = " UNION ALL ".join(_slot(key, mask_count(len(cells)), slot) for slot in range(1, slots + 1))
    return f"SELECT {', '.join(['k.ord', *wanted])} FROM ({rows}) k JOIN {source} ON {' AND '.join(matches)}"


def key_bind(number: int, slot: int) -> str:
    """Return the name of the bind of the key's column ``number`` (from 1) in a slot (from 1)."""
    return f"k{number}_{slot}"


def need_bind(number: int, slot: int) -> str:
    """Return the name of the bind of need mask ``number`` (from 1) in a slot (from 1)."""
    return f"n{number}_{slot}"


def _slot(key: Sequence[KeyBind], masks: int, slot: int) -> str:
    """One row of the derived table. The first one names the columns."""
    values = [(f"k{n}", part.template.format(f":{key_bind(n, slot)}")) for n, part in enumerate(key, 1)]
    values += [(f"need{n}", f"CAST(:{need_bind(n, slot)} AS NUMBER)") for n in range(1, masks + 1)]
    cells = [("ord", str(slot)), *values]
    texts = [f"{text} AS {name}" if slot == 1 else text for name, text in cells]
    return f"SELECT {', '.join(texts)} FROM DUAL"


def probe_flashback(table: tuple[str, str]) -> str:
    """Return a query that needs the same privileges as a read ``AS OF SCN``, and reads nothing."""
    return f"SELECT 1 FROM {quoted(*table)} AS OF TIMESTAMP SYSTIMESTAMP WHERE 1 = 0"


# -- cells ------------------------------------------------------------------------------------------------------------

LOCAL_TIME = "SYYYY-MM-DD HH24:MI:SS"
"""Format of a DATE. Text loses nothing: the driver's ``datetime`` has microseconds, and no years before 1."""
TIME_FORMATS = {
    "DATE": LOCAL_TIME,
    "TIMESTAMP": f"{LOCAL_TIME}.FF9",
    "TIMESTAMP WITH TIME ZONE": f"{LOCAL_TIME}.FF9 TZH:TZM",
    "TIMESTAMP WITH LOCAL TIME ZONE": f"{LOCAL_TIME}.FF9",
}
"""By type; local time zones are printed in the session's time zone, which is UTC."""


def cell_expression(column: str, type_name: str) -> str:
    """Return the SQL that reads a column without loss in the driver. ``type_name`` is the name of its type."""
    cell = f"t.{quoted(column)}"
    if type_name in TIME_FORMATS:
        return f"TO_CHAR({cell}, '{TIME_FORMATS[type_name]}')"
    if type_name == "XMLTYPE":
        return f"{cell}.getClobVal()"
    if type_name == "JSON":
        return f"JSON_SERIALIZE({cell} RETURNING CLOB)"
    return cell
