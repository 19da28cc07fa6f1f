"""How a group of options is laid out in a console's form: order and width follow from the list itself."""

from __future__ import annotations

from dataclasses import replace

from headrace.core.connect.config_def import ConfigDef, ConfigKey, Importance, Type, Width
from headrace.core.connect.config_validators import Validator

_WIDTHS = {
    Type.BOOLEAN: Width.SHORT,
    Type.INT: Width.SHORT,
    Type.SHORT: Width.SHORT,
    Type.LIST: Width.LONG,
    Type.CLASS: Width.LONG,
}


def key(
    name: str,
    type: Type,
    default: str | None,
    doc: str,
    importance: Importance = Importance.MEDIUM,
    validator: Validator | None = None,
) -> ConfigKey:
    """An option whose place is decided by ``group``."""
    return ConfigKey(name, type, default, importance, doc, validator=validator)


def group(title: str, *keys: ConfigKey) -> ConfigDef:
    """Options of one group, numbered from 1, with widths by type and display names made from their names."""
    return ConfigDef(
        tuple(
            replace(
                option,
                group=title,
                order=order,
                width=_WIDTHS.get(option.type, Width.MEDIUM),
                display_name=option.name.replace(".", " ").capitalize(),
            )
            for order, option in enumerate(keys, start=1)
        )
    )
