"""Request bodies, read as leniently and refused as strictly as Jackson does for Connect (``connect.md`` section 1.3).

A configuration is a map of texts: numbers and booleans are taken as they were written, null stays null for the caller
to judge, anything nested is refused. A wrong shape is 500, not 400 and not 422.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from headrace.core.connect.lifecycle import TargetState
from headrace.core.model.errors import RestError
from headrace.runtime.worker.sink_offsets import ConnectorOffset

StringMap = dict[str, str | None]
_INITIAL_STATES = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}


class _Number(str):
    """A JSON number as its source text."""


@dataclass(frozen=True, slots=True)
class CreateConnectorRequest:
    """The body of ``POST /connectors``; ``initial_state`` is None where none was asked for (KIP-980)."""

    name: str
    config: StringMap
    initial_state: TargetState | None


async def create_request(request: Request) -> CreateConnectorRequest:
    """Read the body of ``POST /connectors``. Raises RestError 500."""
    document = _as_object(await _json(request), "CreateConnectorRequest")
    _only(document, "CreateConnectorRequest", "config", "name", "initial_state")
    if document.get("config") is None:
        raise RestError("The request has no config", 500)
    name = _text(document.get("name")) or ""
    return CreateConnectorRequest(name.strip(), _texts(document["config"]), _initial_state(document))


async def string_map(request: Request) -> StringMap:
    """Read a configuration. Raises RestError 500."""
    return _texts(await _json(request))


async def connector_offsets(request: Request) -> list[ConnectorOffset]:
    """Read the body of ``PATCH /connectors/{name}/offsets``; empty where it lists none. Raises RestError 500."""
    document = _as_object(await _json(request), "ConnectorOffsets")
    _only(document, "ConnectorOffsets", "offsets")
    entries = document.get("offsets")
    if entries is not None and not isinstance(entries, list):
        raise RestError(_mismatch("java.util.ArrayList", entries), 500)
    return [_connector_offset(entry) for entry in entries or ()]


def _connector_offset(document: Any) -> ConnectorOffset:
    entry = _as_object(document, "ConnectorOffset")
    _only(entry, "ConnectorOffset", "partition", "offset")
    partition, offset = (
        None if (value := entry.get(field)) is None else _as_object(value, "java.util.LinkedHashMap")
        for field in ("partition", "offset")
    )
    return ConnectorOffset(partition, offset)


async def task_configs(request: Request) -> None:
    """Check that the body is a list, as the worker-internal task request has it. Raises RestError 500."""
    document = await _json(request)
    if not isinstance(document, list):
        raise RestError(_mismatch("java.util.ArrayList", document), 500)


async def _json(request: Request) -> Any:
    body = await request.body()
    if not body.strip():
        return None
    try:
        return json.loads(body, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)
    except RecursionError as error:
        raise RestError("The request body is nested too deeply", 500) from error
    except UnicodeDecodeError as error:
        raise RestError("Invalid UTF-8 in the request body", 500) from error
    except json.JSONDecodeError as error:
        raise RestError(f"{error.msg}\n at [Source: line: {error.lineno}, column: {error.colno}]", 500) from error


def _no_constant(word: str) -> Any:
    raise RestError(f"Unrecognized token '{word}': was expecting a JSON value", 500)


def _as_object(document: Any, kind: str) -> dict[str, Any]:
    if document is None:
        raise RestError("The request has no body", 500)
    if not isinstance(document, dict):
        raise RestError(_mismatch(kind, document), 500)
    return document


def _only(document: dict[str, Any], kind: str, *fields: str) -> None:
    """Raises RestError 500 for a field that is none of these."""
    unknown = next((field for field in document if field not in fields), None)
    if unknown is not None:
        known = ", ".join(f'"{field}"' for field in fields)
        count = "one known property" if len(fields) == 1 else f"{len(fields)} known properties"
        text = f'Unrecognized field "{unknown}" (class {kind}), not marked as ignorable ({count}: {known})'
        raise RestError(text, 500)


def _texts(document: Any) -> StringMap:
    return {name: _text(value) for name, value in _as_object(document, "java.util.LinkedHashMap").items()}


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise RestError(_mismatch("java.lang.String", value), 500)


def _initial_state(document: dict[str, Any]) -> TargetState | None:
    word = _text(document.get("initial_state"))
    if word is None:
        return None
    if word.upper() not in _INITIAL_STATES:
        known = ", ".join(_INITIAL_STATES)
        raise RestError(f"Cannot deserialize value of type InitialState from {word!r}: not one of {known}", 500)
    return _INITIAL_STATES[word.upper()]


def _mismatch(kind: str, value: Any) -> str:
    tokens: dict[type, tuple[str, str]] = {
        dict: ("Object", "START_OBJECT"),
        list: ("Array", "START_ARRAY"),
        str: ("String", "VALUE_STRING"),
    }
    shape, token = tokens.get(type(value), ("Number", "VALUE_NUMBER_INT"))
    return f"Cannot deserialize value of type `{kind}` from {shape} value (token `JsonToken.{token}`)"
