"""``/connectors``: create, read, change, pause, restart and remove connectors (``connect.md`` sections 2.2 to 2.5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

from headrace.core.connect.lifecycle import TargetState
from headrace.core.model.errors import RestError
from headrace.rest import bodies, entities
from headrace.rest.connectors_as_code import OWNER, owner_document, requesting_owner
from headrace.rest.entities import Json
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.herder import Herder

_SEGMENT_SAFE = "+;',:@=&"
_MAX_TASK = 2**31
_CONNECTORS_PER_PART = 100


def router(herder: Herder, advertised: str) -> APIRouter:
    """Return the routes of ``/connectors``. ``advertised`` is the URL of this worker in Location headers."""
    routes = APIRouter(prefix="/connectors", route_class=ConnectRoute)
    _collection(routes, herder, advertised)
    _resource(routes, herder, advertised)
    _offsets(routes, herder)
    _life_cycle(routes, herder)
    _tasks(routes, herder)
    return routes


def _collection(routes: APIRouter, herder: Herder, advertised: str) -> None:
    @routes.get("")
    async def list_connectors(request: Request) -> Response:
        if "expand" not in request.query_params:
            return JSONResponse(herder.connectors())
        entries = _expand(herder, request.query_params.getlist("expand"))
        return StreamingResponse(entries, media_type="application/json")

    @routes.post("")
    async def create_connector(request: Request) -> Response:
        wanted = await bodies.create_request(request)
        info = await herder.create(wanted.name, wanted.config, wanted.initial_state, requesting_owner(request))
        return JSONResponse(entities.connector_info(info), 201, _location(advertised, info.name))


def _resource(routes: APIRouter, herder: Herder, advertised: str) -> None:
    @routes.get("/{name}")
    async def get_connector(name: str) -> Response:
        return JSONResponse(entities.connector_info(herder.info(name)))

    @routes.delete("/{name}")
    async def delete_connector(name: str, request: Request) -> Response:
        owner = requesting_owner(request)
        await herder.delete(name, owner.owner if owner else None)
        return Response(status_code=204)

    @routes.get("/{name}/config")
    async def get_config(name: str) -> Response:
        return JSONResponse(herder.config(name))

    @routes.put("/{name}/config")
    async def put_config(name: str, request: Request) -> Response:
        config = await bodies.string_map(request)
        created, info = await herder.put_config(name, config, requesting_owner(request))
        headers = _location(advertised, name) if created else None
        return JSONResponse(entities.connector_info(info), 201 if created else 200, headers)

    @routes.patch("/{name}/config")
    async def patch_config(name: str, request: Request) -> Response:
        info = await herder.patch_config(name, await bodies.string_map(request))
        return JSONResponse(entities.connector_info(info))

    @routes.get("/{name}/topics")
    async def get_topics(name: str) -> Response:
        return JSONResponse({name: {"topics": herder.topics(name)}})

    @routes.put("/{name}/topics/reset")
    async def reset_topics(name: str) -> Response:
        herder.reset_topics(name)
        return Response(status_code=202)


def _offsets(routes: APIRouter, herder: Herder) -> None:
    @routes.get("/{name}/offsets")
    async def get_offsets(name: str) -> Response:
        return JSONResponse(entities.connector_offsets(await herder.offsets(name)))

    @routes.patch("/{name}/offsets")
    async def alter_offsets(name: str, request: Request) -> Response:
        await herder.alter_offsets(name, await bodies.connector_offsets(request))
        return JSONResponse({"message": "The offsets for this connector have been altered successfully"})

    @routes.delete("/{name}/offsets")
    async def reset_offsets(name: str) -> Response:
        await herder.reset_offsets(name)
        return JSONResponse({"message": "The offsets for this connector have been reset successfully"})


def _life_cycle(routes: APIRouter, herder: Herder) -> None:
    @routes.get("/{name}/status")
    async def get_status(name: str) -> Response:
        return JSONResponse(entities.connector_state_info(herder.status(name)))

    @routes.put("/{name}/pause")
    async def pause(name: str) -> Response:
        await herder.set_target_state(name, TargetState.PAUSED)
        return Response(status_code=202)

    @routes.put("/{name}/resume")
    async def resume(name: str) -> Response:
        await herder.set_target_state(name, TargetState.STARTED)
        return Response(status_code=202)

    @routes.put("/{name}/stop")
    async def stop(name: str) -> Response:
        await herder.set_target_state(name, TargetState.STOPPED)
        return Response(status_code=204)  # Kafka Connect answers 202 to pause and resume, but 204 to stop

    @routes.post("/{name}/restart")
    async def restart(name: str, request: Request) -> Response:
        include_tasks, only_failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
        if not include_tasks and not only_failed:
            herder.restart(name)
            return Response(status_code=204)
        info = await herder.restart_with_tasks(name, include_tasks=include_tasks, only_failed=only_failed)
        return JSONResponse(entities.connector_state_info(info), 202)


def _tasks(routes: APIRouter, herder: Herder) -> None:
    @routes.get("/{name}/tasks")
    async def get_tasks(name: str) -> Response:
        return JSONResponse(entities.task_infos(name, herder.task_configs(name)))

    @routes.post("/{name}/tasks")
    async def put_task_configs(name: str, request: Request) -> Response:
        await bodies.task_configs(request)
        raise _internal_only()

    @routes.put("/{name}/fence")
    async def fence(name: str) -> Response:
        raise _internal_only()

    @routes.get("/{name}/tasks/{task}/status")
    async def get_task_status(name: str, task: str) -> Response:
        task_number = _task_number(task)
        return JSONResponse(entities.task_state(task_number, herder.task_status(name, task_number)))

    @routes.post("/{name}/tasks/{task}/restart")
    async def restart_task(name: str, task: str) -> Response:
        herder.restart_task(name, _task_number(task))
        return Response(status_code=204)


async def _expand(herder: Herder, views: list[str]) -> AsyncIterator[str]:
    """Return the requested views of all connectors, without those that have no status if the status is requested.

    The object is sent in parts, with turns for other work in between: thousands of connectors take seconds.
    """
    begin, part = "{", ""
    for count, name in enumerate(herder.connectors(), 1):
        with suppress(RestError):  # the connector was just deleted, or has no status yet
            part += f"{begin}{_json(name)}:{_json(_views(herder, name, views))}"
            begin = ","
        if count % _CONNECTORS_PER_PART == 0:
            yield part
            part = ""
            await asyncio.sleep(0)
    yield part + ("{}" if begin == "{" else "}")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _views(herder: Herder, name: str, views: list[str]) -> Json:
    entry: Json = {}
    if "status" in views:
        entry["status"] = entities.connector_state_info(herder.status(name))
    if "info" in views:
        entry["info"] = entities.connector_info(herder.info(name))
    if OWNER in views:
        entry[OWNER] = owner_document(herder.owner(name), herder.config(name))
    return entry


def _location(advertised: str, name: str) -> dict[str, str]:
    return {"Location": f"{advertised}/connectors/{quote(name, safe=_SEGMENT_SAFE)}"}


def _flag(request: Request, name: str) -> bool:
    """Return whether the parameter is ``true`` in any case. Any other value is false and not an error."""
    return request.query_params.get(name, "").lower() == "true"


def _task_number(text: str) -> int:
    if not text.removeprefix("-").isdecimal() or int(text) >= _MAX_TASK:
        raise HTTPException(404)
    return int(text)


def _internal_only() -> RestError:
    return RestError("Internal request missing required signature", 400)
