"""``/connectors/{name}/doctor``: what will go wrong with a connector, unknown to Kafka Connect."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from headrace.core.model.errors import ConfigError, RestError
from headrace.rest.route import ConnectRoute
from headrace.runtime.doctor import Diagnosis, Doctor
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker


class ConnectorDoctor:
    """Diagnoses the connectors of the cluster, from this worker's machine."""

    def __init__(self, worker: Worker, herder: Herder, doctor: Doctor) -> None:
        self._worker = worker
        self._herder = herder
        self._doctor = doctor

    async def diagnose(self, name: str) -> Diagnosis:
        """Raises RestError: 404 for an unknown connector, 400 if its configuration is not valid any more."""
        try:
            connector = self._worker.connector_class.resolve(self._herder.config(name), f"Connector {name}")
        except ConfigError as error:
            raise RestError(str(error), 400) from error
        return await self._doctor.diagnose(connector)


def router(doctor: ConnectorDoctor) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    @routes.get("/connectors/{name}/doctor")
    async def get_doctor(name: str) -> Response:
        return JSONResponse((await doctor.diagnose(name)).document())

    return routes
