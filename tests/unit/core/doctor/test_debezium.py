"""Each setting of Debezium that does harm is found, and good settings are silent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.core.doctor.debezium import Rule, SinkOptions, findings
from headrace.core.doctor.findings import Finding, Severity
from headrace.core.doctor.source_connector import SourceConnector
from headrace.core.model.catalog import HandlingModes

GOOD = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "topic.prefix": "shop",
    "skipped.operations": "none",
    "heartbeat.interval.ms": "10000",
    "signal.data.collection": "public.debezium_signal",
}
UNWRAP = {
    "transforms": "route,flat",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.flat.add.fields": "op,source.lsn, table,source.db",
}
MYSQL = {"connector.class": "io.debezium.connector.mysql.MySqlConnector"}


def found(sink: SinkOptions | None = None, **changes: str | None) -> list[Finding]:
    """The findings of good settings with ``changes``; None removes one."""
    config = GOOD | {name.replace("__", "."): text for name, text in changes.items()}
    present = {name: text for name, text in config.items() if text is not None}
    return list(findings(SourceConnector("source", present, "3.7.0.Final"), sink or SinkOptions()))


def with_transform(**changes: str) -> list[Finding]:
    """The findings with a transform that flattens the events; ``changes`` are options of the transform."""
    own = {f"transforms.flat.{name.replace('__', '.')}": text for name, text in changes.items()}
    return list(findings(SourceConnector("source", GOOD | UNWRAP | own, "3.7.0.Final"), SinkOptions()))


def test_good_settings_are_silent() -> None:
    assert found() == []
    assert with_transform() == []


@pytest.mark.parametrize(
    ("changes", "rule", "severity"),
    [
        ({"skipped__operations": "d,t"}, Rule.OPERATIONS_SKIPPED, Severity.ERROR),
        ({"skipped__operations": None}, Rule.OPERATIONS_SKIPPED, Severity.WARNING),
        ({"unavailable__value__placeholder": "absent"}, Rule.PLACEHOLDER, Severity.ERROR),
        ({"snapshot__mode": "initial_only"}, Rule.SNAPSHOT_MODE, Severity.ERROR),
        ({"snapshot__mode": "no_data"}, Rule.SNAPSHOT_MODE, Severity.WARNING),
        ({"snapshot__mode": "never"}, Rule.SNAPSHOT_MODE, Severity.WARNING),
        ({"snapshot__include__collection__list": "public.orders"}, Rule.SNAPSHOT_MODE, Severity.WARNING),
        ({"slot__drop__on__stop": "true"}, Rule.SLOT_DROPPED, Severity.ERROR),
        ({"event__processing__failure__handling__mode": "warn"}, Rule.EVENTS_SKIPPED, Severity.WARNING),
        ({"errors__tolerance": "all"}, Rule.EVENTS_SKIPPED, Severity.WARNING),
        ({"heartbeat__interval__ms": "0"}, Rule.NO_HEARTBEAT, Severity.WARNING),
        ({"heartbeat__interval__ms": None}, Rule.NO_HEARTBEAT, Severity.WARNING),
        ({"signal__data__collection": None}, Rule.NO_SIGNALS, Severity.WARNING),
        ({"signal__enabled__channels": "kafka"}, Rule.NO_SIGNALS, Severity.WARNING),
        ({"binary__handling__mode": "base64"}, Rule.MODE_DIFFERS, Severity.WARNING),
        ({"hstore__handling__mode": "map"}, Rule.MODE_DIFFERS, Severity.WARNING),
        ({"interval__handling__mode": "string"}, Rule.MODE_DIFFERS, Severity.WARNING),
        ({"money__fraction__digits": "4"}, Rule.MODE_DIFFERS, Severity.WARNING),
        ({"post__processors": "r", "r__reselect__cache__enabled": "true"}, Rule.DEFECT, Severity.WARNING),
    ],
)
def test_a_bad_setting(changes: dict[str, str | None], rule: Rule, severity: Severity) -> None:
    [finding] = found(**changes)
    assert (finding.rule, finding.severity) == (rule, severity)


@pytest.mark.parametrize(
    "changes",
    [
        {"skipped__operations": "${file:/etc/secret:ops}"},
        {"heartbeat__interval__ms": "${file:/etc/secret:ms}"},
        {"signal__data__collection": None, "signal__enabled__channels": "jmx"},
        {"signal__enabled__channels": "kafka,source"},
        {"heartbeat__interval__ms": None, "lsn__flush__mode": "connector_and_driver"},
        {"snapshot__mode": "WHEN_NEEDED"},
        {"unavailable__value__placeholder": "hex:5f5f64656265" + "7a69756d5f756e617661696c61626c655f76616c7565"},
        {"tombstones__on__delete": "false"},
    ],
    ids=["unknown operations", "unknown interval", "jmx", "two channels", "driver", "mode", "hex", "tombstones"],
)
def test_what_does_no_harm(changes: dict[str, str | None]) -> None:
    """Also what a config provider inserts: it is not known."""
    assert found(**changes) == []


def test_rounded_values_are_found_whatever_headrace_assumes() -> None:
    """The mode that differs as well is another finding, with the option to copy."""
    rounded, differs = found(decimal__handling__mode="double")
    assert (rounded.rule, differs.rule) == (Rule.VALUES_ROUNDED, Rule.MODE_DIFFERS)
    assert differs.remedy.startswith("decimal.handling.mode=double")
    declared = SinkOptions(modes=HandlingModes(decimal="double", time_precision="connect"))
    rules = [
        finding.rule for finding in found(declared, decimal__handling__mode="double", time__precision__mode="connect")
    ]
    assert rules == [Rule.VALUES_ROUNDED, Rule.VALUES_ROUNDED]


def test_skipped_operations_that_headrace_does_not_know_of() -> None:
    """Then the column cache returns old values as well."""
    [finding] = found(skipped__operations="u")
    assert "column cache" in finding.consequence
    assert "skipped.operations=u in this connector" in finding.remedy
    [finding] = found(SinkOptions(skipped_operations=("u",)), skipped__operations="u")
    assert "column cache" not in finding.consequence


@pytest.mark.parametrize(
    ("options", "evidence"),
    [
        ({"delete__tombstone__handling__mode": "drop"}, "delete.tombstone.handling.mode=drop"),
        ({"delete__handling__mode": "drop"}, "delete.handling.mode is drop"),
        ({"drop__tombstones": "true"}, "delete.handling.mode is drop"),
    ],
)
def test_a_transform_that_drops_deletes(options: dict[str, str], evidence: str) -> None:
    [finding] = with_transform(**options)
    assert (finding.rule, finding.severity) == (Rule.DELETES_DROPPED, Severity.ERROR)
    assert finding.subject == "Debezium connector source, transform flat"
    assert evidence in finding.evidence


def test_a_transform_that_keeps_tombstones_only_needs_tombstones() -> None:
    config = GOOD | UNWRAP | {"tombstones.on.delete": "false"}
    [finding] = findings(SourceConnector("source", config), SinkOptions())
    assert "tombstones.on.delete=false" in finding.evidence
    kept = config | {"transforms.flat.delete.tombstone.handling.mode": "rewrite"}
    assert list(findings(SourceConnector("source", kept), SinkOptions())) == []
    old = config | {"tombstones.on.delete": "true", "transforms.flat.drop.tombstones": "false"}
    assert list(findings(SourceConnector("source", old), SinkOptions())) == []


def test_a_transform_that_removes_what_orders_the_changes() -> None:
    """A field with a new name is a column, and orders nothing. The remedy works."""
    [finding] = with_transform(add__fields="op,source.lsn:number,table,db")
    assert (finding.rule, finding.evidence) == (Rule.NO_POSITIONS, "the transform does not add lsn")
    _, _, remedy = finding.remedy.partition("=")
    assert with_transform(add__fields=remedy.partition(" ")[0]) == []
    for system in ("mysql.MySqlConnector", "oracle.OracleConnector", "sqlserver.SqlServerConnector"):
        config = GOOD | UNWRAP | {"connector.class": f"io.debezium.connector.{system}"}
        sink = SinkOptions(topics={"shop"})
        [finding] = findings(SourceConnector("source", config), sink)
        text = finding.remedy.partition("=")[2].partition(" ")[0]
        assert list(findings(SourceConnector("source", config | {"transforms.flat.add.fields": text}), sink)) == []


@pytest.mark.parametrize(
    ("class_name", "system"),
    [
        ("io.debezium.connector.postgresql.PostgresConnector", "postgresql"),
        ("PostgresConnector", "postgresql"),
        ("SqlServer", "sqlserver"),
        ("org.example.PostgresConnector", ""),
        ("", ""),
    ],
)
def test_a_connector_may_have_the_short_name_of_its_class(class_name: str, system: str) -> None:
    """Kafka Connect accepts a class by its short name, with and without ``Connector``."""
    assert SourceConnector("source", {"connector.class": class_name}).system == system


def test_schema_changes_that_headrace_does_not_read() -> None:
    config = GOOD | MYSQL
    [finding] = findings(SourceConnector("source", config), SinkOptions(pattern=r"shop\..*"))
    assert (finding.rule, finding.evidence) == (Rule.SCHEMA_CHANGES, "this connector does not read topic shop")
    for sink in (SinkOptions(topics={"shop"}), SinkOptions(pattern=r"shop(\..*)?")):
        assert list(findings(SourceConnector("source", config), sink)) == []
        [finding] = findings(SourceConnector("source", config | {"include.schema.changes": "false"}), sink)
        assert finding.evidence == "include.schema.changes=false"


def test_modes_of_oracle() -> None:
    """LOBs count, money and hstore do not exist."""
    config = GOOD | {"connector.class": "io.debezium.connector.oracle.OracleConnector", "lob.enabled": "true"}
    sink = SinkOptions(topics={"shop"})
    [finding] = findings(SourceConnector("source", config | {"hstore.handling.mode": "map"}), sink)
    assert finding.evidence == "lob.enabled is true there, and false in this connector"
    declared = replace(sink, modes=HandlingModes(lob_enabled=True))
    assert list(findings(SourceConnector("source", config), declared)) == []
