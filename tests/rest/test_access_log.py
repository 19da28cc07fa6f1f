"""The access log has one line per request; probes and successful scrapes are logged at DEBUG."""

from __future__ import annotations

import logging

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from support.rest.asgi import request

from headrace.rest.transport import ConnectTransport

pytestmark = pytest.mark.anyio


def application(status: int) -> ConnectTransport:
    """Every path answers with ``status``."""
    app = FastAPI()

    @app.get("/{path:path}")
    async def answer(path: str) -> PlainTextResponse:
        return PlainTextResponse("", status)

    return ConnectTransport(app, app.routes)


@pytest.mark.parametrize(
    ("target", "status", "level"),
    [
        ("/health", 200, logging.DEBUG),
        ("/health/", 200, logging.DEBUG),
        ("/metrics?name=up", 200, logging.DEBUG),
        ("/health", 503, logging.DEBUG),
        ("/health/live", 503, logging.DEBUG),
        ("/health/ready/", 503, logging.DEBUG),
        ("/metrics", 500, logging.INFO),
        ("/healthy", 404, logging.INFO),
        ("/connectors", 200, logging.INFO),
    ],
)
async def test_polls_are_logged_at_debug(
    caplog: pytest.LogCaptureFixture, target: str, status: int, level: int
) -> None:
    """Probes and scrapes come every few seconds. Failed probes are those of a worker that starts."""
    caplog.set_level(logging.DEBUG, "headrace.rest")
    await request(application(status), "GET", target)
    assert [record.levelno for record in caplog.records if record.name == "headrace.rest"] == [level]
