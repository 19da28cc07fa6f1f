"""Three workers that forward to each other over https, with passwords and with tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from kafka_connect.cli import cli
from support.fix_asyncio import eventually
from support.rest.secured import Bearer, SecuredWorker, client, secured_workers, tls, users
from support.rest.worker_api import SHOP, WORKER, table_report
from support.servers.certificates import Authority
from support.servers.token_issuer import token_issuer

from headrace.config import WorkerConfig
from headrace.runtime.verify.connector_rest import connector_rest
from headrace.runtime.verify.table_verifier import Clock
from headrace.runtime.worker.cluster import NO_LEADER

pytestmark = pytest.mark.anyio
THREE = {**SHOP, "tasks.max": "3"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Workers, of which the first one is the leader, and clients with each role and with none."""

    workers: list[SecuredWorker]
    admin: httpx.AsyncClient
    operator: httpx.AsyncClient
    reader: httpx.AsyncClient
    nobody: httpx.AsyncClient
    wrong: httpx.AsyncClient


@pytest.fixture(params=["basic", "bearer"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three workers over https with either kind of credentials."""
    authority = Authority()
    async with AsyncExitStack() as stack:
        auths: list[httpx.Auth | None]
        if request.param == "basic":
            options = users(tmp_path)
            passwords = (("ann", "ann's password"), ("bob", "bob-password"), ("eve", "eve-password"))
            auths = [*(httpx.BasicAuth(*each) for each in passwords), None, httpx.BasicAuth("ann", "wrong")]
        else:
            issuer = await stack.enter_async_context(token_issuer())
            options = issuer.options()
            auths = [Bearer(issuer.token(role)) for role in ("admin", "operate", "read")]
            auths += [None, Bearer(issuer.token("admin", exp=1))]
        workers = await stack.enter_async_context(secured_workers(3, **options, **tls(tmp_path, authority)))
        clients = [await stack.enter_async_context(client(authority, auth)) for auth in auths]
        yield Cluster(workers, *clients)


async def test_a_connectors_life_through_workers_that_follow(cluster: Cluster) -> None:
    """Create, change, pause, restart a task of another worker and its table, alter offsets, delete."""
    leader, *followers = cluster.workers
    for number, worker in enumerate(followers):
        name = f"shop-{number}"
        path = f"{worker.url}/connectors/{name}"
        created = await cluster.admin.post(f"{worker.url}/connectors", json={"name": name, "config": THREE})
        assert (created.status_code, created.headers["location"]) == (201, f"{leader.url}/connectors/{name}")
        for each in cluster.workers:
            await each.api.until(*("RUNNING",) * 4, name=name)
        tasks = (await cluster.reader.get(f"{path}/status")).json()["tasks"]
        assert len({task["worker_id"] for task in tasks}) == 3
        for task in tasks:
            assert (await cluster.operator.post(f"{path}/tasks/{task['id']}/restart")).status_code == 204
        assert (await cluster.admin.patch(f"{path}/config", json={"batch.linger.ms": "5"})).status_code == 200
        assert (await cluster.operator.put(f"{path}/pause")).status_code == 202
        assert (await cluster.operator.put(f"{path}/stop")).status_code == 204
        await eventually(lambda name=name: leader.api.worker.configs.state.task_count(name) == 0)
        assert (await cluster.operator.delete(f"{path}/offsets")).status_code == 200
        assert (await cluster.admin.delete(path)).status_code == 204


async def test_tables_of_all_workers_are_listed_and_restarted(cluster: Cluster) -> None:
    """A worker asks the others for their tables with the credentials of its caller."""
    _, follower, _ = cluster.workers
    await cluster.admin.post(f"{follower.url}/connectors", json={"name": "shop", "config": THREE})
    for each in cluster.workers:
        await each.api.until(*("RUNNING",) * 4)
        [task] = each.api.tasks.tasks.values()
        task.tables = [table_report(f"public.{task.name}")]
    path = f"{follower.url}/connectors/shop/tables"
    tables = [each["table"] for each in (await cluster.reader.get(path)).json()]
    assert tables == ["public.shop-0", "public.shop-1", "public.shop-2"]
    everything = await cluster.reader.get(f"{follower.url}/tables")
    assert [(each["connector"], each["table"]) for each in everything.json()] == [("shop", table) for table in tables]
    assert (await cluster.nobody.get(f"{follower.url}/tables")).status_code == 401
    for table in tables:
        assert (await cluster.operator.post(f"{path}/{table}/restart")).status_code == 204
        assert (await cluster.reader.post(f"{path}/{table}/restart")).status_code == 403
        for verb in ("pause", "resume"):
            assert (await cluster.operator.put(f"{path}/{table}/{verb}")).status_code == 202
            assert (await cluster.reader.put(f"{path}/{table}/{verb}")).status_code == 403


async def test_every_worker_refuses_callers_alike(cluster: Cluster) -> None:
    """401 without valid credentials, 403 without the role, also as if another worker had forwarded the request."""
    body = {"name": "shop", "config": SHOP}
    for worker in cluster.workers:
        for forwarded in ("", "?forward=false"):
            url = f"{worker.url}/connectors{forwarded}"
            for caller, expected in (
                (cluster.nobody, 401),
                (cluster.wrong, 401),
                (cluster.reader, 403),
                (cluster.operator, 403),
            ):
                assert (await caller.post(url, json=body)).status_code == expected
        assert (await cluster.nobody.get(f"{worker.url}/connectors")).status_code == 401
        assert (await cluster.nobody.get(f"{worker.url}/health")).status_code == 200
    assert (await cluster.reader.get(f"{worker.url}/connectors")).json() == []


async def test_credentials_go_to_no_worker_in_clear_or_without_proof(tmp_path: Path) -> None:
    """A follower sends no request to a leader without https, nor to one whose certificate it does not trust."""
    authority, impostor = Authority(), Authority("impostor")
    ann = httpx.BasicAuth("ann", "ann's password")
    options = {**users(tmp_path), **tls(tmp_path, authority)}
    async with secured_workers(2, **options) as [leader, follower], client(authority, ann) as http:
        url = f"{follower.url}/connectors/shop/pause"
        assert (await http.put(url)).status_code == 404
        tls(tmp_path, impostor)
        (tmp_path / "ca.pem").write_bytes(authority.pem())
        async with client(authority, ann) as fresh:
            with pytest.raises(httpx.ConnectError):
                await fresh.put(url)
        refused = await http.put(url)  # on the connection from before
        assert (refused.status_code, refused.json()["message"]) == (409, NO_LEADER)
        assert leader.api.worker.configs.state.connectors() == []
        member = follower.api.worker.cluster._assignment
        assert member is not None
        object.__setattr__(member, "leader", leader.api.worker.worker_id)  # as a leader would that is not on https
        assert (await http.put(url)).json()["message"] == NO_LEADER


async def test_kc_works_with_a_password_and_fails_without(tmp_path: Path) -> None:
    """``kc`` sends its ``--auth`` to a worker that is not the leader."""
    authority = Authority()
    options = {**users(tmp_path), **tls(tmp_path, authority)}
    environment = {"REQUESTS_CA_BUNDLE": str(tmp_path / "ca.pem")}

    async def kc(url: str, *arguments: str) -> str:
        run = CliRunner(env=environment).invoke
        result = await asyncio.to_thread(run, cli, ["--url", url, *arguments])
        return str(result.exception) if result.exception else result.stdout

    async with secured_workers(2, **options) as [_, follower]:
        user = ("--auth", "ann:ann's password")
        created = ("create", "--config-data", json.dumps({"name": "shop", "config": SHOP}))
        assert '"name": "shop"' in await kc(follower.url, *user, *created)
        await follower.api.until("RUNNING", "RUNNING")
        await kc(follower.url, "--auth", "bob:bob-password", "pause", "shop")
        await follower.api.until("PAUSED", "PAUSED")
        assert "403" in await kc(follower.url, "--auth", "eve:eve-password", "resume", "shop")
        assert "401" in await kc(follower.url, "list")
        assert "401" in await kc(follower.url, "--auth", "ann:wrong", "list")


async def test_verify_pauses_a_connector_of_a_secured_worker(tmp_path: Path) -> None:
    """``headrace verify --repair`` has the worker's file, and takes a user from it that may pause."""
    authority = Authority()
    options = {**users(tmp_path, "eve=eve-password\nbob=bob-password\n"), **tls(tmp_path, authority)}
    async with secured_workers(1, **options) as [worker]:
        await worker.api.herder.create("shop", SHOP, None)
        await worker.api.until("RUNNING", "RUNNING")
        listener = {"listeners": worker.url}
        config = WorkerConfig({**WORKER, **options, **listener})
        rest = connector_rest(config, "shop", Clock(lambda: 0.0, lambda _: None))
        block = rest.paused()
        await asyncio.to_thread(block.__enter__)
        await eventually(lambda: worker.api._states("shop") == ("PAUSED", "PAUSED"))
        await asyncio.to_thread(block.__exit__, None, None, None)
        await worker.api.until("RUNNING", "RUNNING")
