"""The columns that the lake table of a dumped table must have, and the forms of their values, for every source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recordings import canonical, mariadb_types, oracle_types, sqlserver_types
from recordings.forms import Form
from recordings.records import DumpedTable, Variant

_FORMS: Mapping[str, Callable[[str, Variant], Form | None]] = {
    "postgres": canonical.form,
    "postgres-partitions": canonical.form,
    "mariadb": mariadb_types.form,
    "mysql": mariadb_types.form,
    "oracle": oracle_types.form,
    "sqlserver": sqlserver_types.form,
}


def columns(table: DumpedTable, of: Variant) -> dict[str, Form]:
    """The columns that the lake table must have, by Debezium's names, with their forms."""
    form = _FORMS[of.source]
    forms = {canonical.field_name(column, of): form(type_name, of) for column, type_name in table.types.items()}
    return {name: found for name, found in forms.items() if found is not None}
