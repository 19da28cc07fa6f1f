"""Contract of every schema registry (``ports.SchemaRegistry``)."""

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
    """A registry in which ``WHOLE``, which refers to ``PART``, has the id ``whole``.

    ``WHOLE`` is the first version of ``subject``. ``down`` makes a registry unreachable.
    """

    registry: SchemaRegistry
    whole: int
    subject: str
    down: Callable[[], SchemaRegistry]
    kinds: list[IdKind] = field(default_factory=lambda: [IdKind.ID])


class SchemaRegistrySuite:
    """Subclasses provide a fixture ``case``."""

    def test_a_schema_comes_with_what_it_refers_to(self, case: RegistryCase) -> None:
        """A registry returns a schema with its references, by each kind of id, with and without the subject."""
        for kind, subject in product(case.kinds, ("", case.subject, "another-topic-value")):
            found = case.registry.fetch(SchemaId(kind, case.whole, subject))
            assert json.loads(found.text) == json.loads(WHOLE)
            assert {name: json.loads(each.text) for name, each in found.references.items()} == {
                "n.Part": json.loads(PART)
            }
            assert isinstance(found, RegisteredSchema)
            assert found.schema_type == "AVRO"

    def test_an_unknown_id_is_the_records_fault(self, case: RegistryCase) -> None:
        """An unknown id is an error of the record, and the message names the id."""
        for kind in case.kinds:
            with pytest.raises(BadRecord, match="999999"):
                case.registry.fetch(SchemaId(kind, 999_999))

    def test_silence_passes(self, case: RegistryCase) -> None:
        """A registry that does not answer is a retriable error, not one of the record."""
        with pytest.raises(Retriable):
            case.down().fetch(SchemaId(case.kinds[0], case.whole))
