"""``verify.*``: the units, and what a verification needs."""

from __future__ import annotations

import pytest

from headrace.config.validation import WorkerDefaults, sink_connector_config, validate
from headrace.config.verify_options import INTERVAL, REPAIR

DEFAULTS = WorkerDefaults({"key.converter": "JsonConverter", "value.converter": "JsonConverter"}, "1.0")
MINIMAL = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a", INTERVAL: "60000"}
DATABASE = {f"reselect.database.{name}": "shop" for name in ("hostname", "user", "dbname", "password")}


def errors(**changes: str) -> dict[str, tuple[str, ...]]:
    infos = validate({**MINIMAL, **{name.replace("__", "."): value for name, value in changes.items()}}, DEFAULTS)
    return {info.definition.name: info.value.errors for info in infos.configs if info.value.errors}


def test_the_units_are_those_of_the_code() -> None:
    """The interval is in seconds; without the option nothing is verified, and nothing is repaired."""
    verify = sink_connector_config({**MINIMAL, **DATABASE, "verify.repair": "AUTO"}, DEFAULTS).verify
    assert (verify.interval, verify.repairs) == (60.0, True)
    without = {name: value for name, value in MINIMAL.items() if name != INTERVAL}
    verify = sink_connector_config(without, DEFAULTS).verify
    assert (verify.interval, verify.repairs) == (0.0, False)


def test_a_verification_needs_a_database() -> None:
    """The error is at the interval, and names the missing options."""
    assert errors(**DATABASE) == {}
    assert list(errors()) == [INTERVAL]
    assert "reselect.database" in errors()[INTERVAL][0]


ROUTED = {
    "transforms": "t",
    "transforms__t__type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms__t__regex": "a",
    "transforms__t__replacement": "b",
}


@pytest.mark.parametrize(
    "changes",
    [
        ROUTED | {"insert__mode": "insert"},
        {"transforms": "t", "transforms__t__type": "org.apache.kafka.connect.transforms.TimestampRouter"},
    ],
)
def test_what_equals_no_source_table_is_not_verified(changes: dict[str, str]) -> None:
    """Transforms that look at single records, and transformed histories, are refused when the connector is created."""
    assert list(errors(**DATABASE, **changes)) == [INTERVAL]


def test_transforms_that_copy_columns_may_be_verified() -> None:
    """A wrong transform is an error of its own."""
    assert errors(**DATABASE, **ROUTED) == {}
    assert INTERVAL not in errors(**DATABASE, **(ROUTED | {"transforms__t__regex": "("}))


def test_a_history_is_verified_and_not_repaired() -> None:
    """The last states of its keys are compared. It contains events, and nothing else is written to it."""
    assert errors(**DATABASE, insert__mode="insert") == {}
    found = errors(**DATABASE, insert__mode="insert", verify__repair="auto")
    assert list(found) == [REPAIR]
    assert "resnapshot" in found[REPAIR][0]
