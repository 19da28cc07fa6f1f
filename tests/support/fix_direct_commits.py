"""Observes commits without Spark, and lets others commit just before one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from headrace_connectors.lakehouse.direct.direct_table import DirectTable
from headrace_connectors.lakehouse.failures import Conflict


@dataclass
class Commits:
    """How many commits were made without Spark; ``meanwhile`` is called once, just before the next one."""

    count: int = 0
    meanwhile: Callable[[], object] | None = None
    lost: bool = False
    """Whether the answer to the next commit is lost."""


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    found, made = Commits(), DirectTable.commit

    def observed(self: DirectTable, *request: Any, **options: Any) -> Any:
        other, found.meanwhile = found.meanwhile, None
        if other is not None:
            other()
        before = self._snapshot
        result = made(self, *request, **options)
        found.count += 1
        if found.lost:
            self._snapshot, found.lost = before, False
            raise Conflict("the result of the commit is unknown")
        return result

    monkeypatch.setattr(DirectTable, "commit", observed)
    return found
