"""Error answers as Kafka Connect's clients expect them: ``{"error_code", "message"}`` (``connect.md`` section 1.2)."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headrace.core.model.errors import RestError
from headrace.runtime.trace import render

log = logging.getLogger(__name__)


def error_response(status: int, message: str) -> JSONResponse:
    """Return an error answer. The message is never empty, because clients call string methods on it."""
    return JSONResponse({"error_code": status, "message": message or HTTPStatus(status).phrase}, status)


def unexpected_error(method: str, path: str, error: Exception) -> JSONResponse:
    """Return the answer for a bug with the class of the error. Log its trace without messages that may have data."""
    log.error("%s %s failed: %s", method, path, render(error))
    return error_response(500, f"Internal error: {type(error).__name__}; see the worker's log")


def install(app: FastAPI) -> None:
    """Replace the framework's error handlers. ``transport.py`` handles all other errors."""
    for error in (RestError, HTTPException, RequestValidationError):
        app.add_exception_handler(error, _handle)


async def _handle(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, RestError):
        return error_response(error.status, str(error))
    if isinstance(error, HTTPException):
        return error_response(error.status_code, f"HTTP {error.status_code} {HTTPStatus(error.status_code).phrase}")
    return unexpected_error(
        request.method, request.url.path, error
    )  # a bug in a route, because bodies.py parses requests
