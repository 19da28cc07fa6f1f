"""Unexpected errors, and requests that provoke one: the answer is JSON, and the log contains no values."""

from __future__ import annotations

import http.client
import json
import logging
from asyncio import to_thread
from collections.abc import AsyncIterator
from email.message import Message

import pytest
from support.rest.asgi import request
from support.rest.served import served
from support.rest.worker_api import SHOP, Api

pytestmark = pytest.mark.anyio
JSON = {"Content-Type": "application/json"}
SECRET = "s3cret"


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A worker with extra headers for every answer."""
    api = Api(**{"access.control.allow.origin": "*", "response.http.headers.config": "set X-Frame-Options:DENY"})
    await api.worker.start()
    yield api
    await api.worker.stop()


async def test_a_bug_is_answered_and_logged_like_any_other_request(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message may contain a value, so answer and log omit it; extra headers and the access log line are there."""
    monkeypatch.setattr(api.herder, "create", _broken)
    caplog.set_level(logging.INFO)
    async with served(api.app) as url:
        status, headers, body = await to_thread(_post, url.removeprefix("http://"))
    expected = {"error_code": 500, "message": "Internal error: ValueError; see the worker's log"}
    assert (status, json.loads(body)) == (500, expected)
    assert (headers["x-frame-options"], headers["access-control-allow-origin"]) == ("DENY", "http://console")
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("POST /connectors failed: ValueError\n\tat _broken(") for line in lines)
    assert any('"POST /connectors" 500 ' in line for line in lines)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("body", [b"[" * 100_000, json.dumps({"name": "\ud800", "config": SHOP}).encode()])
async def test_documents_that_no_parser_foresaw_are_errors_with_a_body(api: Api, body: bytes) -> None:
    """The body is nested too deeply, or contains a single surrogate. Nothing of it is stored."""
    answer = await request(api.app, "POST", "/connectors", JSON, body)
    assert (answer.status, answer.json()["error_code"]) == (500, 500)
    assert api.worker.configs.state.connectors() == []


def _broken(*_: object) -> None:
    raise ValueError(SECRET)


def _post(address: str) -> tuple[int, Message, bytes]:
    connection = http.client.HTTPConnection(address)
    body = json.dumps({"name": "shop", "config": SHOP})
    connection.request("POST", "/connectors", body, {**JSON, "Origin": "http://console"})
    answer = connection.getresponse()
    try:
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()
