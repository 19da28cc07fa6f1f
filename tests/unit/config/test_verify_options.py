"""``verify.*``: the units, and what a verification needs."""

from __future__ import annotations

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


def test_transformed_records_are_not_verified() -> None:
    """They equal no source table, and are refused when the connector is created, not when it runs."""
    transforms = {
        "transforms": "t",
        "transforms__t__type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms__t__regex": "a",
        "transforms__t__replacement": "b",
    }
    assert list(errors(**DATABASE, **transforms)) == [INTERVAL]


def test_a_history_is_verified_and_not_repaired() -> None:
    """The last states of its keys are compared. It contains events, and nothing else is written to it."""
    assert errors(**DATABASE, insert__mode="insert") == {}
    found = errors(**DATABASE, insert__mode="insert", verify__repair="auto")
    assert list(found) == [REPAIR]
    assert "resnapshot" in found[REPAIR][0]
