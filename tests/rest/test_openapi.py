"""The OpenAPI description, and requests that schemathesis generates from it: no unexpected 500, no timeout.

Connect answers 500 to bodies that it cannot read and to offsets that Kafka refuses; ``CONNECTS_OWN`` has its texts.
Names and keys that exist are mixed into the generated ones, so that requests pass the first check.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.rest.asgi import request
from support.rest.served import served
from support.rest.worker_api import SHOP, Api

from headrace.rest.openapi import OPERATIONS
from headrace.runtime.worker.loggers import Loggers

EXAMPLES = 10 if settings().derandomize else 300  # HYPOTHESIS_PROFILE=search looks for more
SECONDS = 30.0
CONNECTS_OWN = re.compile(
    r"Cannot deserialize value of type |Unrecognized (field|token) |Unexpected |Invalid UTF-8 in the request body"
    r"|Expecting |Extra data|Unterminated |Invalid |The request has no (config|body)"
    r"|org\.apache\.kafka\.connect\.runtime\.rest\.errors\.BadRequestException: "
    r"|Failed to (modify|alter|reset) (consumer group )?offsets for (sink )?connector "
)


CREATED = {"name": "made", "config": {**SHOP, "name": "made"}}
AIMED_PATHS = {
    "/connectors": [{"name": "shop", "task": "0"}, {"name": "stopped", "task": "x"}],
    "/connector-plugins": [{"plugin": "LakehouseSink"}],
    "/admin/loggers": [{"name": "headrace"}],
}
"""What exists, by the beginning of a path."""
AIMED_BODIES: dict[str, dict[str, Any]] = {
    "POST /connectors": CREATED,
    "PUT /connectors/{name}/config": {**SHOP, "tasks.max": 2},
    "PATCH /connectors/{name}/config": {"tasks.max": 1},
    "PUT /connectors/{name}/owner": {"owner": "team"},
    "PUT /connector-plugins/{plugin}/config/validate": dict(SHOP),
    "PUT /connector-plugins/{plugin}/config/preview": {**SHOP, "name": "made"},
}
"""Members that a body needs to get past the first check."""


def _aimed(case: Case, label: str) -> Case:
    """The case with the members that its request needs, beside those that were generated."""
    if isinstance(case.body, dict):
        case.body = {**case.body, **AIMED_BODIES.get(label, {})}
    return case


def _cases(label: str) -> st.SearchStrategy[Case]:
    """Valid and invalid requests, half of them for existing objects."""
    operation = REQUESTS[label]
    anywhere = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]
    there = next((paths for beginning, paths in AIMED_PATHS.items() if beginning in label), [])
    names = [{name: value for name, value in path.items() if f"{{{name}}}" in label} for path in there]
    aimed = [
        operation.as_strategy(generation_mode=mode, path_parameters=path or None)
        for path in names
        for mode in GenerationMode
    ]
    return st.one_of(*anywhere, *(strategy.map(lambda case: _aimed(case, label)) for strategy in aimed))


class Served(threading.Thread):
    """A worker behind its HTTP server, in a separate thread."""

    def __init__(self) -> None:
        super().__init__(name="worker")
        self.up = threading.Event()
        self.url = ""

    def run(self) -> None:
        asyncio.run(self._serve())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self.join()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        api = Api()
        manager = logging.Manager(logging.RootLogger(logging.INFO))  # its requests affect no other test
        manager.getLogger("headrace")
        api.worker.loggers = Loggers(api.worker.now, manager)
        api.stores.groups.partitions = {"shop.public.orders": 2}
        await api.worker.start()
        async with served(api.app) as self.url:
            self.up.set()
            await self._over.wait()
        await api.worker.stop()


@pytest.fixture(scope="module")
def worker() -> Iterator[Served]:
    """A worker for all tests of this file."""
    worker = Served()
    worker.start()
    assert worker.up.wait(SECONDS)
    yield worker
    worker.stop()


@pytest.fixture
def url(worker: Served) -> str:
    """The URL of the worker, with both connectors in their initial state."""
    for name, verb in (("shop", "resume"), ("stopped", "stop")):
        requests.put(f"{worker.url}/connectors/{name}/config", json=SHOP, timeout=SECONDS).raise_for_status()
        requests.put(f"{worker.url}/connectors/{name}/{verb}", timeout=SECONDS).raise_for_status()
    return worker.url


DOCUMENT = Api().app.openapi()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
REQUESTS = {operation.label: operation for operation in (each.ok() for each in SCHEMA.get_all_operations())}


@pytest.mark.parametrize("label", REQUESTS)
def test_any_request_gets_an_answer_of_the_description(url: str, label: str) -> None:
    """The answer arrives in time, with a described status and body, and is 500 only if Connect's is."""
    with requests.Session() as session:

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(_cases(label))
        def send(case: Case) -> None:
            answer = case.call(base_url=url, session=session, timeout=SECONDS)
            checks = [status_code_conformance, content_type_conformance, response_schema_conformance]
            case.validate_response(answer, checks=checks)
            if answer.status_code >= 500:
                assert CONNECTS_OWN.match(answer.json()["message"]), answer.json()

        send()


def test_every_request_is_described() -> None:
    """All existing requests are described and no others; the description has no status 422."""
    described = {
        f"{method} {path}": each for path, methods in DOCUMENT["paths"].items() for method, each in methods.items()
    }
    assert described.keys() == OPERATIONS.keys()
    assert not any("422" in operation["responses"] for operation in described.values())


def _contents(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The contents of a request's body and of its answers."""
    for described in (operation.get("requestBody", {}), *operation["responses"].values()):
        yield from described.get("content", {}).values()


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_request_has_a_group_and_examples(label: str) -> None:
    """The page shows the request in a group that it describes, and each body and answer with a valid example."""
    method, path = label.split()
    operation = DOCUMENT["paths"][path][method]
    assert [tag for tag in DOCUMENT["tags"] if tag["name"] in operation["tags"]] != []
    assert len(operation["tags"]) == 1
    for content in _contents(operation):
        schema = {**content["schema"], "components": DOCUMENT["components"]}
        Draft202012Validator(schema).validate(content["example"])
    for parameter in operation["parameters"]:
        assert parameter["in"] == "query" or "example" in parameter


@pytest.mark.anyio
async def test_examples_of_bodies_are_accepted() -> None:
    """Sent in the order of a user: the connector is created before it is changed, and stopped before its offsets."""
    api = Api()
    api.stores.groups.partitions = {"shop.public.orders": 1}
    await api.worker.start()
    sent = {
        "post /connectors": 201,
        "put /connector-plugins/{plugin}/config/validate": 200,
        "put /connector-plugins/{plugin}/config/preview": 200,
        "put /connectors/{name}/config": 200,
        "patch /connectors/{name}/config": 200,
        "put /connectors/{name}/owner": 200,
        "post /connectors/{name}/tables/{table}/resnapshot": 400,  # the connector names no source connector
        "put /connectors/{name}/stop": 204,
        "patch /connectors/{name}/offsets": 200,
        "post /connectors/{name}/tasks": 400,  # Kafka Connect's own workers sign it
    }
    for label, expected in sent.items():
        method, path = label.split()
        operation = DOCUMENT["paths"][path][method]
        target = path.format(**{each["name"]: each["example"] for each in operation["parameters"] if "example" in each})
        body = (
            operation["requestBody"]["content"]["application/json"]["example"] if "requestBody" in operation else None
        )
        answer = await api.call(method.upper(), target, body)
        assert answer.status == expected, (label, answer.body)
    with_bodies = {label for label, operation in OPERATIONS.items() if operation.body is not None}
    assert with_bodies - sent.keys() == {"put /admin/loggers/{name}"}, "it would change the loggers of this process"
    await api.worker.stop()


@pytest.mark.anyio
async def test_the_page_shows_the_description() -> None:
    """A browser requests HTML."""
    app = Api().app
    page = await request(app, "GET", "/docs", {"Accept": "text/html"})
    assert page.status == 200
    assert b"/openapi.json" in page.body
    assert (await request(app, "GET", "/openapi.json")).json()["paths"].keys() == DOCUMENT["paths"].keys()


@pytest.mark.anyio
async def test_the_page_needs_no_other_server() -> None:
    """The worker serves the page's script, style and icon."""
    app = Api().app
    page = (await request(app, "GET", "/docs", {"Accept": "text/html"})).body.decode()
    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(files) == 3
    for file in files:
        assert file.startswith("/docs/static/")
        assert (await request(app, "GET", file)).status == 200
    assert (await request(app, "GET", "/docs/static/other.js")).json()["error_code"] == 404
