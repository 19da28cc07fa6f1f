"""A worker behind its REST application, whose parts are in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # every run of pytest loads this module, and the REST application takes two seconds
    from support.rest.worker_api import Api


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A started worker with the connector ``shop``, which runs."""
    from support.rest.worker_api import Api

    api = Api()
    await api.worker.start()
    await api.create()
    await api.until("RUNNING", "RUNNING")
    yield api
    await api.worker.stop()
