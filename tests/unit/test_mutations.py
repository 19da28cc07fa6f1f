"""The table of mutations (``mutations/check.py``) matches the sources."""

from __future__ import annotations

import pytest
from changed_sources import ROOT
from mutations.table import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_is_applicable(mutation: Mutation) -> None:
    """Whoever changes a mutated line changes ``mutations/table.py`` as well."""
    for edit in mutation.edits:
        assert (ROOT / edit.path).read_text().count(edit.old) == 1


def test_names_are_unique() -> None:
    """The command selects mutations by name."""
    names = [mutation.name for mutation in MUTATIONS]
    assert len(names) == len(set(names)) >= 30
