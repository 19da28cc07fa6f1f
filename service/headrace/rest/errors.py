"""Errors as Connect's clients know them: ``{"error_code", "message"}``, never 422 (``connect.md`` section 1.2)."""

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
    """The body of every error; the message is never empty, because clients call string methods on it."""
    return JSONResponse({"error_code": status, "message": message or HTTPStatus(status).phrase}, status)


def unexpected(method: str, path: str, error: Exception) -> JSONResponse:
    """A bug. The answer names its kind; the rest is in the log, without messages that could quote data."""
    log.error("%s %s failed: %s", method, path, render(error))
    return error_response(500, f"Internal error: {type(error).__name__}; see the worker's log")


def install(app: FastAPI) -> None:
    """Replace the framework's error handlers; what none of them takes is ``transport.py``'s."""
    app.add_exception_handler(RestError, _rest_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)


async def _rest_error(request: Request, error: Exception) -> JSONResponse:
    status = error.status if isinstance(error, RestError) else 500
    return error_response(status, str(error))


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return error_response(status, f"HTTP {status} {HTTPStatus(status).phrase}")


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """A resource's own declaration is wrong: requests are read by ``bodies.py``."""
    return unexpected(request.method, request.url.path, error)
