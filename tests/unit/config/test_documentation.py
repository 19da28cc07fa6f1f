"""The generated documents match the options in the code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from headrace.config import chart_values, connector, documentation, worker_options
from headrace.config.__main__ import made_files
from headrace.config.framework import FRAMEWORK_OPTIONS
from headrace.core.connect.lifecycle import CONNECTOR, LAKE_TABLE, TASK, Event, TableEvent

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", made_files())
def test_generated_files_are_up_to_date(name: str) -> None:
    """Run 'python -m headrace.config' when this fails."""
    assert (ROOT / name).read_text(encoding="utf-8") == made_files()[name]


def test_every_option_is_documented() -> None:
    """The tables contain each option, with a sentence."""
    text = documentation.configuration()
    for key in (*worker_options.WORKER_OPTIONS.keys, *FRAMEWORK_OPTIONS.keys, *connector.SINK_OPTIONS.keys):
        assert f"| `{key.name}` |" in text
        assert key.doc.endswith((".", ")"))


@pytest.mark.parametrize(("transitions", "all_events"), [(CONNECTOR, Event), (TASK, Event), (LAKE_TABLE, TableEvent)])
def test_every_state_and_event_is_documented(
    transitions: Mapping[StrEnum, Mapping[StrEnum, StrEnum]], all_events: type[StrEnum]
) -> None:
    """The page of the states has a row for each state, with the state after each of its events."""
    happening = {event for row in transitions.values() for event in row}
    events = [event for event in all_events if event in happening]
    for state, row in transitions.items():
        after = [row.get(event, "-") for event in events]
        cells = ["deleted" if each == "DESTROYED" else each if each == "-" else f"`{each}`" for each in after]
        assert f"| `{state}` | {' | '.join(cells)} |" in documentation.states()
    assert f"| state | {' | '.join(events)} |" in documentation.states()


def test_the_schema_takes_numbers_and_texts() -> None:
    """The schema of the Helm values accepts an integer or a string for a number."""
    schema = chart_values.values_schema()
    config = schema["properties"]["worker"]["properties"]["config"]
    assert config["properties"]["worker.threads"]["type"] == ["integer", "string"]
    assert json.loads(json.dumps(schema)) == schema
