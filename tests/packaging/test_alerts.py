"""Each alert fires on series of what it is for, and clears when that has passed; promtool evaluates the rules."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from support.repository.prometheus import promtool
from support.repository.rendered_chart import MINIMAL, ROOT, Manifest, manifest

from headrace.monitoring.alerts import ALERTS

OF_RELEASE = 'namespace="data",pod="hr-headrace-0"'
OF_ANOTHER = 'namespace="other",pod="hr-headrace-0"'
TASK = '%s,connector="shop",task="0"'
TABLE = f'{TASK},table="a"'
STATUS = f"kafka_connect_connector_task_status{{{TASK},status="
COMMITS = f"kafka_connect_sink_task_offset_commit_completion_total{{{TASK}}}"
LAG = f'headrace_lag_records{{{TASK},topic="a",partition="0"}}'
OLDEST, FRESHNESS = f"headrace_oldest_unwritten_seconds{{{TABLE}}}", f"headrace_freshness_last_seconds{{{TABLE}}}"
TARGET, LATE = f"headrace_freshness_target_seconds{{{TABLE}}}", f"headrace_freshness_target_missed_total{{{TABLE}}}"
BATCHES = f'headrace_batches_total{{{TABLE},trigger="age"}}'


@dataclass(frozen=True)
class Case:
    """Series with a sample per minute, in promtool's notation, and the minutes at which the alert fires and does not.

    ``labels`` are those of the alert without its severity.
    """

    alert: str
    series: Mapping[str, str]
    fires: int | None
    clear: tuple[int, ...]
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.alert}-{'fires' if self.fires else 'quiet'}"


POD = {"namespace": "data", "pod": "hr-headrace-0"}
OF_CONNECTOR = {"namespace": "data", "connector": "shop"}
OF_TASK = OF_CONNECTOR | {"task": "0"}
OF_TABLE = POD | OF_TASK | {"table": "a"}

CASES = (
    Case(  # a dead task, restarted after 20 minutes
        "HeadraceTaskFailed",
        {f'{STATUS}"failed"}}': "_x9 1x20 _x40", f'{STATUS}"running"}}': "1x9 _x20 1x40"},
        15,
        (5, 45),
        POD | OF_TASK | {"status": "failed"},
    ),
    Case(  # a task that runs and commits nothing: its consumer hangs
        "HeadraceTaskStuck",
        {LAG: "0x10 5+10x60 0x60", COMMITS: "0+1x10 10x60 10+1x60", f'{STATUS}"running"}}': "1x140"},
        65,
        (20, 90),
        OF_TASK,
    ),
    Case(  # a paused task may have lag
        "HeadraceTaskStuck", {LAG: "5+10x90", COMMITS: "10x90", f'{STATUS}"paused"}}': "1x90"}, None, (80,)
    ),
    Case(  # a slow task commits
        "HeadraceTaskStuck", {LAG: "5+10x90", COMMITS: "10+1x90", f'{STATUS}"running"}}': "1x90"}, None, (80,)
    ),
    Case(
        "HeadraceConnectorFailed",
        {'kafka_connect_connector_status{%s,connector="shop",status="failed"}': "_x9 1x20 _x40"},
        15,
        (5, 45),
        POD | {"connector": "shop", "status": "failed"},
    ),
    Case(
        "HeadraceTableFailed",
        {f'headrace_table_state{{{TABLE},state="FAILED"}}': "_x9 1x20 _x40"},
        15,
        (5, 45),
        OF_TABLE | {"state": "FAILED"},
    ),
    Case(
        "HeadraceTableRetrying",
        {f'headrace_table_state{{{TABLE},state="RETRYING"}}': "_x9 1x30 _x40"},
        25,
        (15, 60),
        OF_TABLE | {"state": "RETRYING"},
    ),
    Case(  # a stuck table: its events wait, it misses its target, and nothing is committed
        "HeadraceTableStuck",
        {
            OLDEST: "0x10 60+60x30 0x30",
            FRESHNESS: "3x10 63+60x30 3x30",
            TARGET: "10x80",
            BATCHES: "0+1x10 10x30 10+1x30",
        },
        35,
        (15, 60),
        OF_TABLE,
    ),
    Case(  # a slow table has commits
        "HeadraceTableStuck",
        {OLDEST: "600x60", FRESHNESS: "600x60", TARGET: "10x60", BATCHES: "0+1x60"},
        None,
        (50,),
    ),
    Case(  # a table that is committed once an hour, and has a target that allows it
        "HeadraceTableStuck",
        {OLDEST: "0+60x50", FRESHNESS: "0+60x50", TARGET: "7200x60", BATCHES: "1x60"},
        None,
        (45,),
    ),
    Case(
        "HeadraceTableStale",
        {FRESHNESS: "3x10 120x40 3x40", TARGET: "10x90", LATE: "0x10 0+50x40 2000x40"},
        30,
        (15, 80),
        OF_TABLE,
    ),
    Case(  # the last batch of an idle table was late
        "HeadraceTableStale", {FRESHNESS: "3000x60", TARGET: "10x60", LATE: "50x60"}, None, (50,)
    ),
    Case(  # a snapshot fills the table
        "HeadraceTableStale",
        {
            FRESHNESS: "3000x60",
            TARGET: "10x60",
            LATE: "0+50x60",
            f"headrace_load_rows{{{TABLE}}}": "0+1000x60",
        },
        None,
        (50,),
    ),
    Case("HeadraceLagGrows", {LAG: "200000+900x90 0x90"}, 80, (20, 130), OF_CONNECTOR),
    Case(
        "HeadraceRecordsFail",
        {f"kafka_connect_task_error_total_record_failures{{{TASK}}}": "0x10 0+1x10 9x40"},
        15,
        (5, 45),
        POD | OF_TASK,
    ),
    Case(
        "HeadraceSourceIncomplete",
        {f'reselect_contradictions_total{{{TABLE},kind="k"}}': "0x10 1x100"},
        15,
        (5, 90),
        OF_TABLE | {"kind": "k"},
    ),
    Case(
        "HeadraceRowsDiffer",
        {'headrace_verify_differences{%s,connector="shop",table="a"}': "0x10 3x20 0x20"},
        20,
        (5, 45),
        POD | OF_CONNECTOR | {"table": "a"},
    ),
    Case(  # a stale proof: rounds of 10 minutes, then none for an hour, then one
        "HeadraceProofStale",
        {
            'headrace_verify_age_seconds{%s,connector="shop",table="a"}': "0+60x70 0+6x20",
            'headrace_verify_interval_seconds{%s,connector="shop"}': "600x100",
        },
        60,
        (25, 85),
        POD | OF_CONNECTOR | {"table": "a"},
    ),
    Case(
        "HeadraceSourceNotQueried",
        {f'reselect_connections{{{TASK},state="left_alone"}}': "0x10 1x30 0x30"},
        30,
        (15, 60),
        POD | OF_TASK | {"state": "left_alone"},
    ),
    Case(
        "HeadraceSlotInactive",
        {'headrace_source_slot_active{%s,connector="shop",database="db:5432/shop",slot="debezium"}': "1x10 0x30 1x20"},
        30,
        (15, 50),
        POD | {"connector": "shop", "database": "db:5432/shop", "slot": "debezium"},
    ),
    Case(
        "HeadraceUpkeepBehind", {f"headrace_table_files{{{TABLE}}}": "50x10 300x400 50x60"}, 400, (300, 450), OF_TABLE
    ),
    Case(
        "HeadraceUpkeepBehind",
        {f"headrace_table_deleted_ratio{{{TABLE}}}": "0.5x400 0.1x60"},
        380,
        (300, 450),
        OF_TABLE,
    ),
    Case("HeadraceSparkDown", {"headrace_spark_up{%s}": "1x10 0x20 1x20"}, 20, (5, 45), POD),
    Case("HeadraceSparkRestarts", {"headrace_spark_restarts{%s}": "0x10 0+1x10 10x90"}, 20, (5, 100), POD),
    Case(
        "HeadraceDirectoryNotApplied",
        {'headrace_directory_connectors{%s,state="CONFLICT"}': "0x10 1x20 0x20"},
        20,
        (5, 45),
        POD | {"state": "CONFLICT"},
    ),
    Case("HeadraceDirectoryNotApplied", {"headrace_directory_invalid_files{%s}": "0x10 1x20 0x20"}, 20, (5, 45), POD),
    Case("HeadraceDirectoryNotApplied", {"headrace_directory_readable{%s}": "1x10 0x20 1x20"}, 20, (5, 45), POD),
    Case(  # it ends after 14 days and an hour, and is renewed after 5 hours
        "HeadraceCertificateEnds",
        {'headrace_certificate_end_seconds{%s,option="ssl.keystore.location"}': "1213200x300 9000000x60"},
        200,
        (50, 330),
        POD | {"option": "ssl.keystore.location"},
    ),
    Case("HeadraceWorkerDown", {"up{%s}": "1x10 0x20 1x20"}, 20, (5, 45), POD),
    Case(  # a worker that is gone: its pods, and so their series, end; then one comes
        "HeadraceNoWorker", {"up{%s}": "1x10 stale _x20 1x20"}, 20, (5, 45), {"namespace": "data"}
    ),
)
SEVERITIES = {alert.name: alert.severity for alert in ALERTS}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules of a release without their texts, which ``test_texts_name_the_worker`` compares."""
    [group] = manifest("PrometheusRule", MINIMAL, "--set", "prometheusRule.enabled=true")["spec"]["groups"]
    without = [{key: value for key, value in rule.items() if key != "annotations"} for rule in group["rules"]]
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [group | {"rules": without}]}))
    return path


def test_each_alert_has_a_case() -> None:
    """In the order of the alerts, and with a time at which it fires."""
    assert list(dict.fromkeys(case.alert for case in CASES if case.fires)) == [alert.name for alert in ALERTS]


def test_alerts_fire_and_clear(rules: Path) -> None:
    """Each alert fires with the labels of its series, and clears."""
    _run(rules, [_test(case, OF_RELEASE, case.fires) for case in CASES])


def test_alerts_are_those_of_the_release(rules: Path) -> None:
    """No alert fires on the series of another release, but that on missing workers."""
    others = [_test(case, OF_ANOTHER, None) for case in CASES if case.alert != "HeadraceNoWorker"]
    _run(rules, others)


def test_a_missing_alert_is_noticed(rules: Path) -> None:
    """promtool refuses a case whose alert does not fire: the tests above do not pass without reason."""
    healthy = Case("HeadraceSparkDown", {"headrace_spark_up{%s}": "1x40"}, 20, (), POD)
    with pytest.raises(AssertionError, match="HeadraceSparkDown"):
        _run(rules, [_test(healthy, OF_RELEASE, healthy.fires)])


def test_alerts_name_what_fails() -> None:
    """Each label in the text of an alert is a label of its series; a missing one would be shown as nothing."""
    for alert in ALERTS:
        used = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description)) - {"instance"}
        for case in CASES:
            if case.alert == alert.name and case.fires:
                assert used <= case.labels.keys(), alert.name


@pytest.mark.parametrize("label", ["pod", "instance"])
def test_texts_name_the_worker(tmp_path: Path, label: str) -> None:
    """The rule file names a worker by its pod, or by its address where there are no pods."""
    [down] = [alert for alert in ALERTS if alert.name == "HeadraceWorkerDown"]
    fired = {
        "exp_labels": {"job": "headrace", label: "worker-1", "severity": "critical"},
        "exp_annotations": {
            "summary": "Worker worker-1 does not answer",
            "description": down.description,
            "runbook_url": down.runbook,
        },
    }
    path = tmp_path / "rules.yaml"
    path.write_text((ROOT / "config" / "monitoring" / "rules.yaml").read_text())
    test = {
        "interval": "1m",
        "input_series": [{"series": f'up{{job="headrace",{label}="worker-1"}}', "values": "0+0x30"}],
        "alert_rule_test": [{"eval_time": "20m", "alertname": down.name, "exp_alerts": [fired]}],
    }
    _run(path, [test])


def _test(case: Case, target: str, fires: int | None) -> Manifest:
    """A test of promtool."""
    fired = {"exp_labels": {**case.labels, "severity": SEVERITIES[case.alert]}}
    times = {minute: [] for minute in case.clear} | (
        {} if case.fires is None else {case.fires: [fired] if fires else []}
    )
    return {
        "interval": "1m",
        "input_series": [
            {"series": series % target, "values": re.sub(r"(?<![\d.+_])([\d.]+)x", r"\1+0x", values)}
            for series, values in case.series.items()
        ],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alerts}
            for minute, alerts in times.items()
        ],
    }


def _run(rules: Path, tests: list[Manifest]) -> None:
    """Let promtool evaluate the tests; fails with its report."""
    path = rules.with_name("test.yaml")
    path.write_text(json.dumps({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": tests}))
    answer = subprocess.run([promtool(), "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
