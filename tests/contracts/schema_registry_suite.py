"""What every schema registry does (``ports.SchemaRegistry``)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import pytest

from headrace.converters.registered import IdKind, RegisteredSchema, SchemaId
from headrace.core.model.errors import BadRecord, Retriable
from headrace.ports import SchemaRegistry

PART = '{"type":"record","name":"n.Part","fields":[]}'
WHOLE = '{"type":"record","name":"n.Whole","fields":[{"name":"part","type":"n.Part"}]}'


@dataclass
class RegistryCase:
    """A registry in which ``WHOLE``, which refers to ``PART``, has the id ``whole``; ``down`` makes one silent.

    It is the first version of ``subject``.
    """

    registry: SchemaRegistry
    whole: int
    subject: str
    down: Callable[[], SchemaRegistry]
    kinds: list[IdKind] = field(default_factory=lambda: [IdKind.ID])


class SchemaRegistrySuite:
    """Subclasses have a fixture ``case``."""

    def test_a_schema_comes_with_what_it_refers_to(self, case: RegistryCase) -> None:
        """By each kind of id that it knows, within its subject or not; it may have come by another topic, too."""
        for kind, subject in product(case.kinds, ("", case.subject, "another-topic-value")):
            found = case.registry.fetch(SchemaId(kind, case.whole, subject))
            assert json.loads(found.text) == json.loads(WHOLE)
            assert {name: json.loads(each.text) for name, each in found.references.items()} == {
                "n.Part": json.loads(PART)
            }
            assert isinstance(found, RegisteredSchema)
            assert found.schema_type == "AVRO"

    def test_an_unknown_id_is_the_records_fault(self, case: RegistryCase) -> None:
        """The message names it."""
        for kind in case.kinds:
            with pytest.raises(BadRecord, match="999999"):
                case.registry.fetch(SchemaId(kind, 999_999))

    def test_silence_passes(self, case: RegistryCase) -> None:
        """And costs no record."""
        with pytest.raises(Retriable):
            case.down().fetch(SchemaId(case.kinds[0], case.whole))
