"""The lane that the tests of this folder share: the stack starts slowly, and the tests tolerate a running load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chaos.lane import Lane

from headrace_dev.stack import Stack


@pytest.fixture(scope="module")
def lane(stack: Stack, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A shop with a running worker."""
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    with Lane(stack, name, tmp_path_factory.mktemp(name)) as lane:
        yield lane
