"""The generated documents match the options in the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.config import chart_values, connector, documentation, worker_options
from headrace.config.__main__ import made_files
from headrace.config.framework import FRAMEWORK_OPTIONS

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


def test_the_schema_takes_numbers_and_texts() -> None:
    """The schema of the Helm values accepts an integer or a string for a number."""
    schema = chart_values.values_schema()
    config = schema["properties"]["worker"]["properties"]["config"]
    assert config["properties"]["worker.threads"]["type"] == ["integer", "string"]
    assert json.loads(json.dumps(schema)) == schema
