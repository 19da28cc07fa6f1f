"""The examples of ``config/catalogs``, with the addresses of servers of the test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_EXAMPLES = Path(__file__).parents[2] / "config" / "catalogs"
_OF_THE_LANE = ("bootstrap.servers", "group.id", "config.storage.topic", "status.storage.topic", "listeners")


def example(name: str, changes: Mapping[str, str], additions: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of an example with ``changes`` of its values, without those that each lane sets.

    Raises KeyError for a change of a key that the example does not have.
    """
    lines = (_EXAMPLES / f"{name}.properties").read_text().splitlines()
    keys = dict(line.split("=", 1) for line in lines if line.strip() and not line.startswith("#"))
    if unknown := changes.keys() - keys.keys():
        raise KeyError(f"{name} does not have {', '.join(sorted(unknown))}")
    kept = {key: value for key, value in keys.items() if key not in _OF_THE_LANE}
    return {**kept, **changes, **additions}


def secrets(folder: Path, **values: str) -> Mapping[str, str]:
    """Write a file of secrets, and return a reference to each."""
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / f"{'-'.join(values)}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return {key: f"${{file:{file}:{key}}}" for key in values}
