"""A page of another site cannot make a browser change a worker."""

from __future__ import annotations

import pytest
from support.rest.asgi import request
from support.rest.worker_api import Api

pytestmark = pytest.mark.anyio
HOST = {"Host": "connect.example.com:8083"}
OTHER = "https://other.example.com"
PAGES = [
    ({"Origin": OTHER}, False),
    ({"Origin": "null"}, False),
    ({"Origin": "http://["}, False),
    ({"Origin": "http://connect.example.com"}, False),
    ({"Origin": "http://connect.example.com:8083"}, True),
    ({"Origin": "http://Connect.example.com:8083"}, True),
    ({"Origin": OTHER, "Sec-Fetch-Site": "cross-site"}, False),
    ({"Sec-Fetch-Site": "same-site"}, False),
    ({"Sec-Fetch-Site": "cross-site"}, False),
    ({"Origin": "https://behind.a.proxy", "Sec-Fetch-Site": "same-origin"}, True),
    ({"Sec-Fetch-Site": "none"}, True),
    ({}, True),
]


@pytest.mark.parametrize(("headers", "accepted"), PAGES, ids=lambda each: str(each)[:60])
async def test_only_pages_of_the_worker_change_it(headers: dict[str, str], accepted: bool) -> None:
    """Clients that are no browsers send neither header. Pages may read, because browsers hide the answers from them."""
    api = Api()
    await api.worker.start()
    for method, target in (("PUT", "/connectors/shop/pause"), ("POST", "/connectors/shop/restart"), ("DELETE", "/x")):
        answer = await request(api.app, method, target, {**HOST, **headers})
        assert (answer.status == 403) != accepted, method
    assert (await request(api.app, "GET", "/connectors", {**HOST, **headers})).status == 200
    await api.worker.stop()


async def test_pages_of_allowed_origins_change_a_worker() -> None:
    """``access.control.allow.origin`` names whole origins."""
    api = Api(**{"access.control.allow.origin": "https://*.example.com"})
    for origin, refused in ((OTHER, False), (f"{OTHER}.evil.org", True)):
        headers = {**HOST, "Origin": origin, "Sec-Fetch-Site": "cross-site"}
        answer = await request(api.app, "DELETE", "/connectors/shop", headers)
        assert (answer.status == 403) == refused, origin


async def test_a_form_of_another_site_is_no_json() -> None:
    """A browser without these headers sends forms only as three content types, and none of them is read."""
    api = Api()
    await api.worker.start()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = await request(api.app, "POST", "/connectors", {"Content-Type": kind}, b'{"name": "x", "config": {}}')
        assert answer.status == 415
    await api.worker.stop()
