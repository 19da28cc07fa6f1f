"""Access to the worker: pages of other origins, extra headers, client properties that connectors override."""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime

import pytest
from starlette.responses import PlainTextResponse
from support.rest.asgi import Answer, request
from support.rest.worker_api import SHOP, WORKER, Api

from headrace.config import WorkerConfig
from headrace.config.rest_options import header_rules
from headrace.config.validation import validate
from headrace.core.model.errors import ConfigError
from headrace.rest.access import ResponseHeaders
from headrace.runtime.worker.worker import worker_defaults

PAGE = {"Origin": "https://console.example.com"}
ALLOWED = "access-control-allow-origin"


def ask(method: str, target: str, headers: dict[str, str], **worker: str) -> Answer:
    """The answer of a worker with these options."""
    return asyncio.run(request(Api(**worker).app, method, target, headers))


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        ("https://console.example.com", PAGE["Origin"]),
        ("https://other.example.com, https://*.example.com", PAGE["Origin"]),
        ("*", PAGE["Origin"]),
        ("https://example.com", None),
        ("", None),
    ],
)
def test_only_pages_of_named_origins_may_read_answers(origins: str, expected: str | None) -> None:
    """The answer repeats the requested origin, as Connect's does, also for an unknown path."""
    options = {"access.control.allow.origin": origins}
    for target in ("/", "/connectors/none", "/connectors/%2f"):
        assert ask("GET", target, PAGE, **options).headers.get(ALLOWED) == expected


def test_browsers_learn_which_methods_they_may_send() -> None:
    """By default Jetty allows GET, POST and HEAD."""
    asked = {**PAGE, "Access-Control-Request-Method": "PUT"}
    options = {"access.control.allow.origin": "*"}
    assert ask("OPTIONS", "/connectors", asked, **options).status == 400
    answer = ask("OPTIONS", "/connectors", asked, **options, **{"access.control.allow.methods": "GET,PUT"})
    assert (answer.status, answer.headers["access-control-allow-methods"]) == (200, "GET, PUT")


def test_every_answer_has_the_headers_that_rules_ask_for() -> None:
    """Errors and unknown paths have the headers as well."""
    rules = 'set X-Frame-Options: DENY, "add Cache-Control: no-cache, no-store"'
    for target in ("/", "/connectors/none", "/connectors/%2f"):
        headers = ask("GET", target, {}, **{"response.http.headers.config": rules}).headers
        assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-cache, no-store")


def test_rules_set_and_add_headers_and_dates() -> None:
    """``set`` replaces a header; dates are milliseconds from now."""
    app = ResponseHeaders(
        PlainTextResponse("", headers={"Server": "inner", "Vary": "Accept"}),
        header_rules("set server:outer,ADD Vary:Origin,setDate Expires:90000"),
        now=lambda: 1_000_000.0,
    )
    headers = asyncio.run(request(app, "GET", "/")).headers
    assert headers["server"] == "outer"
    assert headers["vary"] == "Origin", "the last of two"
    assert parsedate_to_datetime(headers["expires"]).timestamp() == 1_000_090


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("set", "Expected: '\\[action\\] \\[header name\\]:\\[header value\\]'"),
        ("put X:1", "Invalid header config action: 'put'. Expected one of set, add, setDate, addDate"),
        ("set X", "Expected: '\\[header name\\]:\\[header value\\]'"),
        ("set X Y:1", "cannot contain whitespace"),
        ("setDate Expires:soon", "milliseconds from now"),
    ],
)
def test_rules_that_say_nothing_are_refused(rules: str, message: str) -> None:
    """The worker does not start, and reports Connect's message."""
    with pytest.raises(ConfigError, match=message):
        WorkerConfig({**WORKER, "response.http.headers.config": rules})


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ({"policy": "all"}, ()),
        ({"policy": "None"}, ("max.poll.records", "sasl.mechanism")),
        ({"policy": "Principal"}, ("max.poll.records",)),
        ({"policy": "Allowlist"}, ("max.poll.records", "sasl.mechanism")),
        ({"policy": "Allowlist", "allowlist": "max.poll.records"}, ("sasl.mechanism",)),
        ({"policy": "org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy"}, None),
    ],
)
def test_connectors_set_what_the_policy_allows(policy: dict[str, str], refused: tuple[str, ...] | None) -> None:
    """Each property that may not be overridden has Connect's message as its error."""
    given = ("max.poll.records", "sasl.mechanism")
    worker = {f"connector.client.config.override.{key}": value for key, value in policy.items()}
    overrides = {"consumer.override.max.poll.records": "7", "consumer.override.sasl.mechanism": "X"}
    infos = validate({**SHOP, "name": "shop", **overrides}, worker_defaults(WorkerConfig({**WORKER, **worker})))
    values = {info.value.name: list(info.value.errors) for info in infos.configs}
    found = {name: values[f"consumer.override.{name}"] for name in given}
    name = policy["policy"].rpartition(".")[2].removesuffix("ConnectorClientConfigOverridePolicy")
    expected = given if refused is None else refused
    text = "The '{}' policy does not allow '{}' to be overridden in the connector configuration."
    assert found == {each: [text.format(name, each)] if each in expected else [] for each in given}


def test_unknown_policies_are_refused() -> None:
    """A misspelt policy does not mean All."""
    with pytest.raises(ConfigError, match="must be one of: All, None, Principal, Allowlist"):
        WorkerConfig({**WORKER, "connector.client.config.override.policy": "Nothing"})
