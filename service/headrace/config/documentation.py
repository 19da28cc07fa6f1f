"""The documents that are made from the code: options, errors and states.

``python -m headrace.config`` writes them; a test fails when they have drifted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headrace.config import connector, worker_keys, worker_options
from headrace.config.converter import CONVERTERS
from headrace.config.framework import FRAMEWORK_OPTIONS
from headrace.config.other_sinks import OTHER_SINKS
from headrace.core.connect.config_def import ConfigDef, ConfigKey
from headrace.core.connect.lifecycle import CONNECTOR, TASK, diagram
from headrace.core.model.errors import POLICY

_MADE = "<!-- Made from the code by `python -m headrace.config`; edit it there. -->\n"


def configuration() -> str:
    """All options of worker and connector, and what Kafka Connect's users will look for in vain."""
    parts = [
        "# Configuration\n",
        _MADE,
        "Keys are Kafka Connect's and Debezium's where they have one. A key that is not listed here is refused, with a "
        "suggestion; so are keys and values that belong to a later release.\n",
        "## Worker\n",
        "In `worker.properties`, or from the environment: `CONNECT_BOOTSTRAP_SERVERS` is `bootstrap.servers`. "
        f"{_listed(worker_keys.PASS_THROUGH)} go on as they are to Kafka's clients, to Spark and to converters; "
        f"{_listed(worker_keys.CLIENT_SECURITY)} hold for all of the worker's clients.\n",
        *_groups(worker_options.WORKER_OPTIONS),
        "Settings of the storage topics, for when they are created, may stand behind "
        f"{_listed(worker_keys.CREATED_TOPICS)}, such as `config.storage.min.insync.replicas`.\n",
        "### Without effect\n",
        "Accepted with a warning, so that a file of Kafka Connect can be moved over.\n",
        *_reasons(worker_keys.WITHOUT_EFFECT),
        "### Not yet\n",
        *_reasons(worker_keys.LATER),
        "## Connector\n",
        "In `POST /connectors` and `PUT /connectors/{name}/config`. Client properties go under "
        f"{_listed(connector.CLIENT_OVERRIDES)}. Reselect options may also stand under `post.processors.<name>.`. A "
        "consumer's `request.timeout.ms` is never below its `rebalance.timeout.ms` and 5 s: a join takes so long.\n",
        *_groups(FRAMEWORK_OPTIONS + connector.SINK_OPTIONS),
        *_converters(),
        "### Not yet\n",
        *_reasons(connector.LATER),
    ]
    return "\n".join(parts).rstrip() + "\n"


def migration() -> str:
    """What the keys of other sinks are called here."""
    parts = [
        "# Moving a connector over\n",
        _MADE,
        "You have a sink connector that reads Debezium's topics and want its tables in the lake. Keep `topics` or "
        "`topics.regex`, `tasks.max`, converters, `errors.*` and `consumer.override.*` as they are, and `transforms` "
        "([transforms.md](transforms.md), which says which of them are not needed any more); set "
        '`"connector.class": "LakehouseSink"`; replace what the tables below name. Give it a new `name`: under the old '
        "one it would go on where the old sink's group stands, and miss what came before. Then let it be checked, "
        "without a worker and without Kafka:\n",
        "```sh\nheadrace validate shop.json\n```\n",
        "A key that is left over from the old sink is an error that says what it is called here.\n",
    ]
    for sink, keys in OTHER_SINKS.items():
        parts += [f"## {sink}\n", "| there | here |", "|---|---|"]
        parts += [f"| `{name}` | {here} |" for name, here in keys.items()] + [""]
    return "\n".join(parts).rstrip() + "\n"


def errors() -> str:
    """The table of errors: what happens by itself, and what an operator does."""
    rows = [
        f"| `{kind.__name__}` | {_yes(rule.retry)} | {_yes(rule.tolerable)} | {rule.http_status} | {rule.hint} |"
        for kind, rule in POLICY.items()
    ]
    head = ["| error | retried | tolerable | HTTP | what to do |", "|---|---|---|---|---|"]
    text = "`errors.tolerance=all` skips tolerable errors. Anything that is not listed is treated as `Fatal`.\n"
    return "\n".join(["# Errors\n", _MADE, text, *head, *rows, ""])


def states() -> str:
    """The state diagrams of connectors and tasks."""
    return "\n".join(
        [
            "# States\n",
            _MADE,
            "## Connector\n\n```mermaid",
            diagram(CONNECTOR),
            "```\n\n## Task\n\n```mermaid",
            diagram(TASK),
            "```\n",
        ]
    )


def _groups(options: ConfigDef) -> Iterator[str]:
    for title in options.groups():
        yield f"### {title}\n"
        yield from _table([key for key in options.keys if key.group == title])


def _converters() -> Iterator[str]:
    """The classes by the options that they share."""
    yield "### Converters\n"
    yield "Under `key.converter.` or `value.converter.`, of the worker or of a connector that names the converter.\n"
    for options in dict.fromkeys(each for each in CONVERTERS.values() if len(each.keys) > 1):
        yield ", ".join(f"`{name}`" for name, its in CONVERTERS.items() if its is options) + ":\n"
        yield from _table(each for each in options.keys if each.name != "converter.type")  # never given


def _table(keys: Iterable[ConfigKey]) -> Iterator[str]:
    yield "| key | type | default | |"
    yield "|---|---|---|---|"
    for key in keys:
        yield f"| `{key.name}` | {key.type} | {_default(key)} | {_cell(key.doc)} |"
    yield ""


def _default(key: ConfigKey) -> str:
    if key.required:
        return "required"
    return f"`{key.default_text}`" if key.default_text else ""


def _reasons(reasons: Mapping[str, str]) -> Iterator[str]:
    yield from (f"- `{name}`: {reason}" for name, reason in reasons.items())
    yield ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}*`" for name in names)


def _cell(text: str) -> str:
    """Text that is neither the end of a cell nor a tag."""
    return text.replace("|", "\\|").replace("<", "\\<")


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
