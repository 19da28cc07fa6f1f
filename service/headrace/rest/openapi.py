"""The OpenAPI description for ``/docs`` and ``/openapi.json``: one entry per request, with its body and answers.

FastAPI provides the paths and their parameters. It cannot derive bodies and answers, because ``bodies.py`` parses
bodies with Kafka Connect's rules and not as Python types. ``openapi_examples.py`` has the examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fastapi import FastAPI

from headrace.core.connect.timeline import EVENTS, Kind
from headrace.rest.openapi_examples import ANSWERS, BODIES, ERROR, PATHS
from headrace.rest.openapi_schemas import (
    FLAG,
    LEVEL,
    MESSAGE,
    NULLABLE,
    NUMBER,
    SCHEMAS,
    TEXT,
    Answers,
    Json,
    list_of,
    map_of,
    object_of,
    ref,
)
from headrace.rest.timeline import DEFAULT_LIMIT


class Tag(StrEnum):
    """A group of requests on the page."""

    CONNECTORS = "Connectors"
    STATES = "States"
    TABLES = "Tables"
    DEAD_LETTERS = "Dead letters"
    OFFSETS = "Offsets"
    AS_CODE = "Connectors as code"
    PLUGINS = "Plug-ins"
    WORKER = "Worker"
    LOGGERS = "Log levels"
    INTERNAL = "Internal"


TAGS: Mapping[Tag, str] = {
    Tag.CONNECTORS: "Create, read, change and remove connectors",
    Tag.STATES: "States of connectors and tasks: read them, pause, resume, stop and restart",
    Tag.TABLES: "The lake tables of the connectors, which Kafka Connect does not know",
    Tag.DEAD_LETTERS: "Records that a connector could not use, and their replay, which Kafka Connect does not know",
    Tag.OFFSETS: "Committed offsets of a connector's consumer group",
    Tag.AS_CODE: "Connectors that are defined in files (connectors.directory, headrace apply)",
    Tag.PLUGINS: "Connector classes and their options, and the validation of a configuration",
    Tag.WORKER: "Version, probes and metrics of this worker",
    Tag.LOGGERS: "Levels of the worker's loggers",
    Tag.INTERNAL: "Requests that only Kafka Connect's own workers send to each other",
}
"""The description of each group, in the order of the page."""


@dataclass(frozen=True, slots=True)
class RestOperation:
    """One request. ``query`` has the parameters by name, each with its schema and description."""

    tag: Tag
    summary: str
    answers: Answers
    body: Json | None = None
    query: Mapping[str, tuple[Json, str]] = field(default_factory=dict)
    needs_body: bool = True


def _query(**parameters: tuple[Json, str]) -> Mapping[str, tuple[Json, str]]:
    return parameters


_INFO, _STATES = ref("ConnectorInfo"), ref("ConnectorStateInfo")
_CONFIG = ref("ConfigGiven")
_DONE = "Accepted; the worker applies it asynchronously"
_REFUSED = "Internal request between workers of Kafka Connect; always refused (400)"
_PROBE = object_of({"status": TEXT, "message": TEXT})
_EXPANDED = map_of(object_of({}, {"info": _INFO, "status": _STATES, "owner": ref("Owner")}))
_AS_OWNER = _query(
    owner=(TEXT, "Make the change as this owner of connectors as code; 409 if the connector is not its own"),
    source=(TEXT, "File that the change comes from"),
)
_TIMELINE = _query(
    limit=({"type": "integer", "minimum": 1, "maximum": EVENTS, "default": DEFAULT_LIMIT}, "The most events to return"),
    kind=(list_of({"enum": list(Kind)}), "Only events of this kind; may be repeated"),
    table=(TEXT, "Only events of this table"),
)

OPERATIONS: Mapping[str, RestOperation] = {
    "get /": RestOperation(
        Tag.WORKER,
        "Version and Kafka cluster id",
        {200: ("Versions and cluster", object_of({"version": TEXT, "commit": TEXT, "kafka_cluster_id": NULLABLE}))},
    ),
    "get /health": RestOperation(
        Tag.WORKER,
        "Readiness of the worker, independent of failed connectors",
        {status: (text, _PROBE) for status, text in ((200, "Ready"), (500, "Stuck"), (503, "Starting or stopping"))},
    ),
    "get /health/live": RestOperation(
        Tag.WORKER,
        "Whether the worker makes progress; if not, restart it",
        {status: (text, _PROBE) for status, text in ((200, "It does"), (503, "It does not; message contains why"))},
    ),
    "get /health/ready": RestOperation(
        Tag.WORKER,
        "Whether the worker answers requests and Spark runs",
        {status: (text, _PROBE) for status, text in ((200, "Ready"), (503, "Not ready; message contains why"))},
    ),
    "get /workers": RestOperation(
        Tag.WORKER,
        "This worker and the others that have tasks, with their memory",
        {200: ("Workers", list_of(ref("WorkerInfo")))},
    ),
    "get /metrics": RestOperation(Tag.WORKER, "Metrics for Prometheus", {200: ("Text exposition", {})}),
    "get /connectors": RestOperation(
        Tag.CONNECTORS,
        "All connectors",
        {200: ("Names; with expand, a map of views by name", {"anyOf": [list_of(TEXT), _EXPANDED]})},
        query=_query(expand=(list_of({"enum": ["info", "status", "owner"]}), "Views to include; may be repeated")),
    ),
    "post /connectors": RestOperation(
        Tag.CONNECTORS,
        "Create a connector",
        {201: ("Created", _INFO)},
        body=ref("CreateConnectorRequest"),
        query=_AS_OWNER,
    ),
    "get /connectors/{name}": RestOperation(
        Tag.CONNECTORS, "A connector with its configuration and tasks", {200: ("The connector", _INFO)}
    ),
    "delete /connectors/{name}": RestOperation(
        Tag.CONNECTORS,
        "Remove a connector; its group's offsets stay",
        {204: ("Removed", None)},
        query=_query(owner=_AS_OWNER["owner"]),
    ),
    "get /connectors/{name}/config": RestOperation(
        Tag.CONNECTORS, "Configuration of a connector, as submitted", {200: ("Values by key", ref("Config"))}
    ),
    "put /connectors/{name}/config": RestOperation(
        Tag.CONNECTORS,
        "Replace the configuration of a connector, or create the connector",
        {200: ("Replaced", _INFO), 201: ("Created", _INFO)},
        body=_CONFIG,
        query=_AS_OWNER,
    ),
    "patch /connectors/{name}/config": RestOperation(
        Tag.CONNECTORS,
        "Change some keys of the configuration; null removes a key",
        {200: ("Changed", _INFO)},
        body=_CONFIG,
    ),
    "get /connectors/{name}/owner": RestOperation(
        Tag.AS_CODE, "What created the connector from a file, null if nothing did", {200: ("Owner", ref("Owner"))}
    ),
    "put /connectors/{name}/owner": RestOperation(
        Tag.AS_CODE,
        "Give a connector to an owner, which may then change and delete it",
        {200: ("Owner", ref("Owner"))},
        body=object_of({"owner": TEXT}),
    ),
    "delete /connectors/{name}/owner": RestOperation(
        Tag.AS_CODE, "Release a connector from its owner; the connector stays", {204: ("Released", None)}
    ),
    "get /connectors/{name}/topics": RestOperation(
        Tag.CONNECTORS,
        "Topics that a connector has read",
        {200: ("By connector", map_of(object_of({"topics": list_of(TEXT)})))},
    ),
    "put /connectors/{name}/topics/reset": RestOperation(
        Tag.CONNECTORS, "Empty the list of topics", {202: ("Accepted", None)}
    ),
    "get /connectors/{name}/offsets": RestOperation(
        Tag.OFFSETS, "Committed offsets of a connector's group", {200: ("By partition", ref("ConnectorOffsets"))}
    ),
    "patch /connectors/{name}/offsets": RestOperation(
        Tag.OFFSETS,
        "Set offsets of a stopped connector; null removes an offset",
        {200: ("Altered", MESSAGE)},
        body=ref("ConnectorOffsets"),
    ),
    "delete /connectors/{name}/offsets": RestOperation(
        Tag.OFFSETS, "Remove the offsets of a stopped connector", {200: ("Reset", MESSAGE)}
    ),
    "get /connectors/{name}/status": RestOperation(
        Tag.STATES, "States of a connector and its tasks", {200: ("States", _STATES)}
    ),
    "put /connectors/{name}/pause": RestOperation(
        Tag.STATES, "Pause a connector; it stays in its group", {202: (_DONE, None)}
    ),
    "put /connectors/{name}/resume": RestOperation(
        Tag.STATES, "Resume a paused or stopped connector", {202: (_DONE, None)}
    ),
    "put /connectors/{name}/stop": RestOperation(
        Tag.STATES, "Stop a connector; it leaves its group and has no tasks", {204: (_DONE, None)}
    ),
    "post /connectors/{name}/restart": RestOperation(
        Tag.STATES,
        "Restart a connector, with a flag also its tasks",
        {202: ("With a flag: what will restart", _STATES), 204: ("Without: the connector alone", None)},
        query=_query(
            includeTasks=(FLAG, "Whether to restart its tasks as well"),
            onlyFailed=(FLAG, "Whether to restart only what has failed"),
        ),
    ),
    "get /connectors/{name}/tasks": RestOperation(
        Tag.CONNECTORS, "Configurations of a connector's tasks", {200: ("Tasks", list_of(ref("TaskInfo")))}
    ),
    "post /connectors/{name}/tasks": RestOperation(Tag.INTERNAL, _REFUSED, {}, body=list_of(_CONFIG)),
    "put /connectors/{name}/fence": RestOperation(Tag.INTERNAL, _REFUSED, {}),
    "get /connectors/{name}/tasks/{task}/status": RestOperation(
        Tag.STATES, "State of a task", {200: ("State", ref("TaskState"))}
    ),
    "post /connectors/{name}/tasks/{task}/restart": RestOperation(Tag.STATES, "Restart a task", {204: (_DONE, None)}),
    "get /connectors/{name}/tables": RestOperation(
        Tag.TABLES,
        "State, freshness and waiting changes of a connector's tables",
        {200: ("Tables", list_of(ref("TableReport")))},
    ),
    "get /connectors/{name}/tables/{table}": RestOperation(
        Tag.TABLES,
        "State, freshness and waiting changes of a table, its files and columns; and what happened since the task "
        "started: the last batches, operations, reselect, changes of columns",
        {200: ("Table", ref("TableDetails"))},
    ),
    "get /connectors/{name}/tables/{table}/queries": RestOperation(
        Tag.TABLES,
        "How to query a table in several engines, according to its format and catalog; without credentials",
        {
            200: (
                "Queries; no text if an engine cannot",
                list_of(object_of(dict.fromkeys(("engine", "text", "note"), TEXT))),
            )
        },
    ),
    "get /tables": RestOperation(
        Tag.TABLES,
        "The tables of all connectors, on all workers: failed ones first, then those that are retried, then the least "
        "fresh",
        {200: ("Tables", list_of({"allOf": [object_of({"connector": TEXT}), ref("TableReport")]}))},
    ),
    "get /connectors/{name}/stages": RestOperation(
        Tag.STATES,
        "What each task did in the last minute: rates, and how many threads were in each stage on average",
        {200: ("Tasks", list_of(ref("TaskFlow")))},
    ),
    "get /connectors/{name}/doctor": RestOperation(
        Tag.CONNECTORS,
        "What will go wrong with the connector, the worst first: checks its topics, its source database and, with "
        "source.connector.url, Debezium's connector",
        {200: ("Diagnosis", ref("Diagnosis"))},
    ),
    "get /connectors/{name}/dead-letters": RestOperation(
        Tag.DEAD_LETTERS,
        "The connector's dead letters by topic and reason, and the newest ones, without keys and values of records; it "
        "reads the newest 10,000 records of the queue, for at most 15 s (complete says whether these were all)",
        {200: ("Counts and letters", ref("DeadLetters"))},
        query=_query(
            limit=(NUMBER, "Most letters to list, up to 1000; the default is 100"),
            topic=(TEXT, "List the letters of records of this topic only"),
            reason=(TEXT, "List the letters with this reason only, as in reasons"),
        ),
    ),
    "post /connectors/{name}/dead-letters/replay": RestOperation(
        Tag.DEAD_LETTERS,
        "Send the connector's dead letters through its task again, in the background; the connector pauses while they "
        "are written; 409 while another replay runs",
        {202: ("The replay, which runs", ref("Replay"))},
        query=_query(
            dry_run=(FLAG, "true: only count the letters, and write nothing"),
            old=(
                FLAG,
                "true: also send letters older than tombstone.retention.ms; a row that was deleted since may come back",
            ),
        ),
    ),
    "get /connectors/{name}/dead-letters/replay": RestOperation(
        Tag.DEAD_LETTERS,
        "Progress or result of the connector's last replay; 404 if there was none",
        {200: ("The replay", ref("Replay"))},
    ),
    "delete /connectors/{name}/dead-letters/replay": RestOperation(
        Tag.DEAD_LETTERS,
        "Cancel the replay: it ends when the write in flight has ended, and the connector resumes; what was written "
        "stays; 404 if none is running",
        {202: ("The replay, which ends", ref("Replay"))},
    ),
    "get /connectors/{name}/timeline": RestOperation(
        Tag.CONNECTORS,
        "What has happened to a connector, its tasks and tables, newest first, also if it was deleted",
        {200: ("Events", list_of(ref("TimelineEvent")))},
        query=_TIMELINE,
    ),
    "get /timeline": RestOperation(
        Tag.CONNECTORS,
        "What has happened to all connectors and workers, newest first",
        {200: ("Events", list_of(ref("TimelineEvent")))},
        query=_TIMELINE,
    ),
    "put /connectors/{name}/tables/{table}/pause": RestOperation(
        Tag.TABLES,
        "Pause a table: neither read nor write it until it is resumed; the other tables continue",
        {202: (_DONE, None)},
    ),
    "put /connectors/{name}/tables/{table}/resume": RestOperation(
        Tag.TABLES, "Resume a paused table, where it stopped", {202: (_DONE, None)}
    ),
    "post /connectors/{name}/tables/{table}/restart": RestOperation(
        Tag.TABLES,
        "Restart a table: open it again, and read again what it does not have",
        {204: (_DONE, None)},
        query=_query(
            missing=(
                {"enum": ["fail", "recreate"]},
                "recreate: create a table that does not exist any more, or accept one that was rolled back, and "
                "continue at the group's offsets, as table.missing=recreate does for all tables",
            )
        ),
    ),
    "post /connectors/{name}/tables/{table}/resnapshot": RestOperation(
        Tag.TABLES,
        "Fill a table again from its source, in the background: an incremental snapshot of Debezium, a comparison, and "
        "a repair. Needs source.connector.url",
        {202: ("Requested", ref("Resnapshot"))},
        body={**object_of({}, {"source.table": TEXT, "topic": TEXT}), "additionalProperties": False},
        needs_body=False,
    ),
    "get /connectors/{name}/tables/{table}/resnapshot": RestOperation(
        Tag.TABLES,
        "Progress and result of the table's newest resnapshot",
        {200: ("Resnapshot", ref("Resnapshot"))},
    ),
    "delete /connectors/{name}/tables/{table}/resnapshot": RestOperation(
        Tag.TABLES,
        "Cancel a resnapshot; what has arrived stays",
        {202: (_DONE, ref("Resnapshot"))},
    ),
    "get /connectors-directory": RestOperation(
        Tag.AS_CODE,
        "How the connectors compare with the files of connectors.directory",
        {200: ("The leader's last round", ref("Directory"))},
    ),
    "get /connector-plugins": RestOperation(
        Tag.PLUGINS,
        "Connector classes",
        {200: ("Plug-ins", list_of(ref("PluginInfo")))},
        query=_query(connectorsOnly=(FLAG, "false also lists converters, transforms and predicates")),
    ),
    "get /connector-plugins/{plugin}/config": RestOperation(
        Tag.PLUGINS,
        "The options of a plug-in",
        {200: ("Definitions", list_of(ref("ConfigKeyInfo")))},
        query=_query(version=(TEXT, "Range of versions in Maven's syntax")),
    ),
    "put /connector-plugins/{plugin}/config/validate": RestOperation(
        Tag.PLUGINS,
        "Validate a configuration",
        {200: ("Each option's value and errors", ref("ConfigInfos"))},
        body=_CONFIG,
    ),
    "put /connector-plugins/{plugin}/config/preview": RestOperation(
        Tag.PLUGINS,
        "The existing topics that a configuration would read, and the names of their tables; creates nothing",
        {200: ("Topics and tables", ref("Preview"))},
        body=_CONFIG,
    ),
    "get /admin/loggers": RestOperation(
        Tag.LOGGERS, "Levels of this worker's loggers", {200: ("By name", map_of(ref("LoggerLevel")))}
    ),
    "get /admin/loggers/{name}": RestOperation(Tag.LOGGERS, "Level of a logger", {200: ("Level", ref("LoggerLevel"))}),
    "put /admin/loggers/{name}": RestOperation(
        Tag.LOGGERS,
        "Set the level of a logger and of all loggers below it",
        {200: ("The loggers that changed", list_of(TEXT)), 204: ("Sent to all workers", None)},
        body=object_of({"level": LEVEL}),
        query=_query(scope=({"enum": ["worker", "cluster"]}, "This worker, or all workers")),
    ),
}


def install(app: FastAPI) -> None:
    """Generate the application's description from this table, at the first request for it."""
    generated = app.openapi

    def document() -> Json:
        return app.openapi_schema or _complete(generated())

    app.openapi = document  # type: ignore[method-assign]  # the way that FastAPI documents


def _complete(document: Json) -> Json:
    """Raises KeyError for a request that has no entry."""
    document["components"] = {"schemas": dict(SCHEMAS)}
    document["tags"] = [{"name": tag, "description": text} for tag, text in TAGS.items()]
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            described |= _describe(f"{method} {path}", described.get("parameters", ()))
    return document


def _describe(label: str, path_parameters: Sequence[Json]) -> Json:
    """Return the members of an operation that replace those of the framework."""
    operation, examples = OPERATIONS[label], ANSWERS.get(label, {})
    answers = {
        str(status): _answer(text, schema, examples.get(status)) for status, (text, schema) in operation.answers.items()
    }
    path_examples = PATHS.get(label, PATHS[""])
    path = [{**parameter, "example": path_examples[parameter["name"]]} for parameter in path_parameters]
    query = [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": text}
        for name, (schema, text) in operation.query.items()
    ]
    body = {}
    if operation.body is not None:
        body = {"requestBody": {"required": operation.needs_body, **_content(operation.body, BODIES[label])}}
    return {
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [*path, *query],
        "responses": {**answers, "default": _answer("Error", ref("Error"), ERROR)},
        **body,
    }


def _answer(text: str, schema: Json | None, example: Any = None) -> Json:
    if schema is None:
        return {"description": text}
    return {"description": text, **_content(schema, example, "application/json" if schema else "text/plain")}


def _content(schema: Json, example: Any, media_type: str = "application/json") -> Json:
    return {"content": {media_type: {"schema": schema, "example": example}}}
