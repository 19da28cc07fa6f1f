"""Tests that the table of mutations (``mutations/check.py``) matches the sources."""

from __future__ import annotations

import pytest
from mutations.table import MUTATIONS, Mutation
from support.repository.changed_sources import ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_is_applicable(mutation: Mutation) -> None:
    """The old text of each mutation occurs once in its source file: else correct ``mutations/table.py``."""
    for edit in mutation.edits:
        assert (ROOT / edit.path).read_text().count(edit.old) == 1


def test_names_are_unique() -> None:
    """Mutations have unique names, because the command selects them by name."""
    names = [mutation.name for mutation in MUTATIONS]
    assert len(names) == len(set(names)) >= 30
