"""The audit log: who changed what, from where, with which result."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import pytest
from support.rest.asgi import request
from support.rest.secured import ANN, EVE, client, secured_workers, tls, users
from support.rest.worker_api import SHOP, Api
from support.servers.certificates import Authority

pytestmark = pytest.mark.anyio


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the audit log."""
    return [each.getMessage() for each in caplog.records if each.name == "headrace.audit"]


async def test_each_change_is_one_line(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Also a refused one. Reads and validations change nothing. No value of a configuration is logged."""
    caplog.set_level(logging.INFO, "headrace.audit")
    api = Api(**users(tmp_path))
    await api.worker.start()
    json = {"Content-Type": "application/json"}
    secret = b'{"name": "shop", "config": {"connector.class": "LakehouseSink", "topics": "a", "x.password": "s3cret"}}'
    for method, target, headers in (
        ("POST", "/connectors", {**ANN, **json}),
        ("PUT", "/connector-plugins/LakehouseSink/config/validate", {**ANN, **json}),
        ("GET", "/connectors", ANN),
        ("DELETE", "/connectors/sh%C3%B6p/?token=s3cret", {**EVE, "X-Forwarded-For": '10.0.0.9" user="ann'}),
        ("PUT", "/connectors/shop/stop?forward=false", {}),
    ):
        await request(api.app, method, target, headers, secret if headers.keys() & json else b"")
    await api.worker.stop()
    assert lines(caplog) == [
        'user="ann" method="POST" path="/connectors" client="127.0.0.1" status=400 from_worker=false',
        'user="eve" method="DELETE" path="/connectors/sh%C3%B6p/" client="127.0.0.1" '
        'x_forwarded_for="10.0.0.9\\" user=\\"ann" status=403 from_worker=false',
        'user="anonymous" method="PUT" path="/connectors/shop/stop" client="127.0.0.1" status=401 from_worker=true',
    ]
    assert "s3cret" not in caplog.text


async def test_a_user_cannot_forge_a_line(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """A name with a line break is one JSON string."""
    caplog.set_level(logging.INFO, "headrace.audit")
    file = {"rest.basic.auth.file": str(tmp_path / "users")}
    (tmp_path / "users").write_text("a\\nb=password\n")
    answer = await request(
        Api(**file).app, "DELETE", "/x", {"Authorization": "Basic " + "YQpiOnBhc3N3b3Jk"}
    )  # a, line break, b
    assert answer.status != 401
    assert lines(caplog)[0].startswith('user="a\\nb" method="DELETE" path="/x"')


async def test_both_workers_log_a_forwarded_change_and_certificates_name_clients(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Without users, the subject of a client's certificate is the user; the leader sees that of the other worker."""
    caplog.set_level(logging.INFO, "headrace.audit")
    authority = Authority()
    options = {**tls(tmp_path, authority), "listeners.https.ssl.client.auth": "required"}
    key, begin, rest = authority.issue("carol").pem().partition(b"-----BEGIN CERTIFICATE")
    async with secured_workers(2, **options) as [_, follower], client(authority, own=(key, begin + rest)) as http:
        created: httpx.Response = await http.post(f"{follower.url}/connectors", json={"name": "shop", "config": SHOP})
        assert created.status_code == 201
    line = 'user="commonName={}" method="POST" path="/connectors" client="127.0.0.1" status=201 from_worker={}'
    assert lines(caplog) == [line.format("worker", "true"), line.format("carol", "false")]
