"""What a batch does to a table's columns, as ``schema.evolution`` says (``merge.md`` section 8)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.core.model.errors import Fatal
from headrace.ports import LakeTable


def evolve(name: str, table: LakeTable, wanted: pa.Schema, key_fields: Sequence[str], *, new_columns: bool) -> None:
    """Give ``table`` the columns that it lacks; a table that is not there is made.

    Raises Fatal where ``new_columns`` is false and the table lacks one; ``name`` is what the message calls it.
    """
    stored = table.schema()
    if stored is not None and not new_columns and (new := sorted(set(wanted.names) - set(stored.names))):
        raise Fatal(f"{name}: new column(s) {', '.join(new)}, and schema.evolution is none")
    table.evolve(wanted, key_fields)
