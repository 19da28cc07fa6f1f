"""Parse request bodies with the rules of Jackson in Kafka Connect (``connect.md`` section 1.3).

A configuration is a map of strings. Numbers and booleans become their source text, null stays null, and nested values
are rejected. A body of another structure is an error 500, not 400 or 422.

Tests: ``tests/rest/test_hostile_requests.py``, ``tests/rest/test_limits.py``, ``tests/rest/test_transcript.py``.
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
    """The source text of a JSON number: a class of its own distinguishes it from a JSON string."""


@dataclass(frozen=True, slots=True)
class CreateConnectorRequest:
    """The body of ``POST /connectors``. ``initial_state`` is None if the request has none (KIP-980)."""

    name: str
    config: StringMap
    initial_state: TargetState | None


async def create_request(request: Request) -> CreateConnectorRequest:
    """Parse the body of ``POST /connectors``. Raises RestError 500."""
    document = _as_object(await _json(request), "CreateConnectorRequest")
    _check_fields(document, "CreateConnectorRequest", "config", "name", "initial_state")
    if document.get("config") is None:
        raise RestError("The request has no config", 500)
    name, config = (_text(document.get("name")) or "").strip(), _texts(document["config"])
    state = _text(document.get("initial_state"))
    if state is not None and state.upper() not in _INITIAL_STATES:
        states = ", ".join(_INITIAL_STATES)
        raise RestError(f"Cannot deserialize value of type InitialState from {state!r}: not one of {states}", 500)
    return CreateConnectorRequest(name, config, None if state is None else _INITIAL_STATES[state.upper()])


async def string_map(request: Request) -> StringMap:
    """Parse a configuration. Raises RestError 500."""
    return _texts(await _json(request))


async def connector_offsets(request: Request) -> list[ConnectorOffset]:
    """Parse the body of ``PATCH /connectors/{name}/offsets``, which may be empty. Raises RestError 500."""
    document = _as_object(await _json(request), "ConnectorOffsets")
    _check_fields(document, "ConnectorOffsets", "offsets")
    entries = document.get("offsets")
    if entries is not None and not isinstance(entries, list):
        raise RestError(_mismatch("java.util.ArrayList", entries), 500)
    offsets = []
    for entry in entries or ():
        members = _as_object(entry, "ConnectorOffset")
        _check_fields(members, "ConnectorOffset", "partition", "offset")
        partition, offset = (
            None if (value := members.get(field)) is None else _as_object(value, "java.util.LinkedHashMap")
            for field in ("partition", "offset")
        )
        offsets.append(ConnectorOffset(partition, offset))
    return offsets


async def task_configs(request: Request) -> None:
    """Check that the body is a list, like that of Kafka Connect's internal request. Raises RestError 500."""
    document = await _json(request)
    if not isinstance(document, list):
        raise RestError(_mismatch("java.util.ArrayList", document), 500)


async def _json(request: Request) -> object:
    body = await request.body()
    if not body.strip():
        return None
    try:
        document = json.loads(body, parse_int=_Number, parse_float=_Number, parse_constant=_reject_constant)
        if b"\\u" in body:
            # An escape can be half of a surrogate pair, which cannot be encoded to store or return it.
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except UnicodeEncodeError as error:
        raise RestError("Half of a surrogate pair in the request body", 500) from error
    except RecursionError as error:
        raise RestError("The request body is nested too deeply", 500) from error
    except UnicodeDecodeError as error:
        raise RestError("Invalid UTF-8 in the request body", 500) from error
    except json.JSONDecodeError as error:
        raise RestError(f"{error.msg}\n at [Source: line: {error.lineno}, column: {error.colno}]", 500) from error


def _reject_constant(token: str) -> object:
    """Reject ``NaN``, ``Infinity`` and ``-Infinity``, which Python's parser accepts."""
    raise RestError(f"Unrecognized token '{token}': was expecting a JSON value", 500)


def _as_object(document: object, java_class: str) -> dict[str, Any]:
    if document is None:
        raise RestError("The request has no body", 500)
    if not isinstance(document, dict):
        raise RestError(_mismatch(java_class, document), 500)
    return document


def _check_fields(document: dict[str, Any], java_class: str, *fields: str) -> None:
    """Raise RestError 500 for the first field that is not one of ``fields``."""
    unknown = next((field for field in document if field not in fields), None)
    if unknown is not None:
        listed = ", ".join(f'"{field}"' for field in fields)
        count = "one known property" if len(fields) == 1 else f"{len(fields)} known properties"
        text = f'Unrecognized field "{unknown}" (class {java_class}), not marked as ignorable ({count}: {listed})'
        raise RestError(text, 500)


def _texts(document: object) -> StringMap:
    return {name: _text(value) for name, value in _as_object(document, "java.util.LinkedHashMap").items()}


def _text(value: object) -> str | None:
    if value is None or type(value) is str:  # not a _Number, which is a subclass
        return value
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise RestError(_mismatch("java.lang.String", value), 500)


def _mismatch(java_class: str, value: object) -> str:
    """Return Jackson's message for a value that cannot become a ``java_class``."""
    tokens: dict[type, tuple[str, str]] = {
        dict: ("Object", "START_OBJECT"),
        list: ("Array", "START_ARRAY"),
        str: ("String", "VALUE_STRING"),
    }
    shape, token = tokens.get(type(value), ("Number", "VALUE_NUMBER_INT"))
    return f"Cannot deserialize value of type `{java_class}` from {shape} value (token `JsonToken.{token}`)"
