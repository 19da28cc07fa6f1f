"""Basic authentication by Kafka Connect's extension: who may send which request."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.rest.asgi import Answer, request
from support.rest.secured import ANN, BOB, EVE, USERS, basic, users
from support.rest.worker_api import SHOP, Api

from headrace.config.rest_options import BASIC_AUTH_EXTENSION
from headrace.core.model.errors import ConfigError
from headrace.rest.access import Role, required_role

pytestmark = pytest.mark.anyio

REQUESTS = {
    Role.READ: [
        ("GET", "/"),
        ("HEAD", "/connectors"),
        ("GET", "/connectors/shop/config"),
        ("GET", "/metrics"),
        ("GET", "/admin/loggers"),
        ("GET", "/openapi.json"),
        ("GET", "/docs"),
    ],
    Role.OPERATE: [
        ("PUT", "/connectors/shop/pause"),
        ("PUT", "/connectors/shop/resume"),
        ("PUT", "/connectors/shop/stop"),
        ("PUT", "/connectors/shop/topics/reset"),
        ("POST", "/connectors/shop/restart?includeTasks=true"),
        ("POST", "/connectors/shop/tasks/0/restart"),
        ("POST", "/connectors/shop/tables/public.orders/restart/"),
        ("POST", "/connectors/shop/tables/public.orders/resnapshot"),
        ("DELETE", "/connectors/shop/tables/public.orders/resnapshot"),
        ("PUT", "/connectors/shop/tables/public.orders/pause"),
        ("PUT", "/connectors/shop/tables/public.orders/resume"),
        ("PATCH", "/connectors/shop/offsets"),
        ("DELETE", "/connectors/shop/offsets"),
    ],
    Role.ADMIN: [
        ("POST", "/connectors"),
        ("PUT", "/connectors/shop/config"),
        ("PATCH", "/connectors/shop/config"),
        ("DELETE", "/connectors/shop"),
        ("PUT", "/connectors/pause/config"),
        ("DELETE", "/connectors/offsets"),
        ("PUT", "/connector-plugins/LakehouseSink/config/validate"),
        ("PUT", "/admin/loggers/root?scope=cluster"),
        ("POST", "/connectors/shop/tasks"),
        ("PUT", "/connectors/shop/fence"),
        ("POST", "/anything/else"),
    ],
}
EVERY_REQUEST = [(role, *each) for role, found in REQUESTS.items() for each in found]


ROLES = {Role.ADMIN: ANN, Role.OPERATE: BOB, Role.READ: EVE}


@pytest.fixture
def secured(tmp_path: Path) -> Callable[..., Api]:
    """Makes workers with three users."""
    return lambda **options: Api(**{"rest.extension.classes": BASIC_AUTH_EXTENSION, **users(tmp_path), **options})


@pytest.mark.parametrize(("needed", "method", "target"), EVERY_REQUEST)
async def test_a_request_needs_its_role(needed: Role, method: str, target: str, secured: Callable[..., Api]) -> None:
    """401 without credentials, 403 with the missing role, any other answer with it."""
    api = secured()
    assert required_role(method, target.partition("?")[0].rstrip("/") or "/") is needed
    missing = await request(api.app, method, target)
    assert (missing.status, missing.headers["www-authenticate"]) == (401, 'Basic realm="KafkaConnect"')
    for role, header in ROLES.items():
        answer = await request(api.app, method, target, header)
        assert (answer.status == 403) == (role < needed), role
        if role < needed and method != "HEAD":
            assert answer.json()["message"] == f"The request needs the role {needed}; its caller has the role {role}"


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Basic"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic " + base64.b64encode(b"ann").decode()},
        {"Authorization": "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode()},
        {"Authorization": "Bearer x.y.z"},
        {"Authorization": "Digest username=ann"},
        basic("ann", ""),
        basic("ann", "bob-password"),
        basic("ANN", "ann's password"),
        basic("nobody", ""),
        basic("", ""),
    ],
)
async def test_wrong_credentials_are_refused(header: dict[str, str], secured: Callable[..., Api]) -> None:
    """Every answer is the same, so that it does not show whether a user exists."""
    answer = await request(secured().app, "GET", "/connectors", header)
    assert (answer.status, answer.json()) == (
        401,
        {"error_code": 401, "message": "User cannot access the resource."},
    )


@pytest.mark.parametrize("path", ["/health", "/health/", "/health/live", "/health/ready"])
async def test_probes_have_no_credentials(path: str, secured: Callable[..., Api]) -> None:
    """Every path under /health is open, and none beside it."""
    assert (await request(secured().app, "GET", path)).status != 401
    for other in ("/healthy", "/connectors/health", "//health", "/health/../connectors"):
        assert (await request(secured().app, "GET", other)).status in (400, 401)


async def test_metrics_are_open_if_an_option_says_so(secured: Callable[..., Api]) -> None:
    """Prometheus may have no credentials."""
    assert (await request(secured().app, "GET", "/metrics")).status == 401
    api = secured(**{"rest.metrics.anonymous": "true"})
    assert (await request(api.app, "GET", "/metrics")).status == 200
    assert (await request(api.app, "GET", "/connectors")).status == 401


async def test_an_error_has_the_headers_of_every_answer(secured: Callable[..., Api]) -> None:
    """A page of an allowed origin can read a 401."""
    api = secured(**{"access.control.allow.origin": "https://console.example.com"})
    answer = await request(api.app, "GET", "/connectors", {"Origin": "https://console.example.com"})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (401, "https://console.example.com")


async def test_users_change_with_their_file(secured: Callable[..., Api], tmp_path: Path) -> None:
    """A password changes without a restart. A file that is empty or gone leaves the last users."""
    api = secured()
    file = tmp_path / "users.properties"

    async def status(header: dict[str, str]) -> int:
        return (await request(api.app, "GET", "/loggers", header)).status

    file.write_text(USERS.replace("bob-password", "new-password"))
    os.utime(file, ns=(1, 1))
    assert await status(BOB) == 401
    assert await status(basic("bob", "new-password")) == 404
    assert await status(ANN) == 404
    file.write_text("")
    assert await status(ANN) == 404
    file.unlink()
    assert await status(ANN) == 404
    file.write_text("zoe=zoe-password\n")
    assert await status(ANN) == 401
    assert await status(basic("zoe", "zoe-password")) == 404


@pytest.mark.parametrize("text", [None, "", "# nobody\n", "ann=\n"])
def test_a_worker_without_users_does_not_start(text: str | None, tmp_path: Path) -> None:
    """Kafka Connect accepts everybody if the file is empty."""
    file = tmp_path / "users.properties"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=r"^rest\.basic\.auth\.file: ") as refused:
        Api(**{"rest.basic.auth.file": str(file)})
    assert str(file) in str(refused.value)


async def test_a_secured_worker_does_what_an_admin_requests(secured: Callable[..., Api]) -> None:
    """The connector is created, and its configuration shown to a reader."""
    api = secured()
    await api.worker.start()
    body = b'{"name": "shop", "config": {"connector.class": "LakehouseSink", "topics": "a"}}'
    created: Answer = await request(api.app, "POST", "/connectors", {**ANN, "Content-Type": "application/json"}, body)
    assert created.status == 201
    shown = await request(api.app, "GET", "/connectors/shop/config", EVE)
    assert shown.json() == {"connector.class": SHOP["connector.class"], "topics": "a", "name": "shop"}
    await api.worker.stop()
