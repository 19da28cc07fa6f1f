"""Tests of the declarations: a worker exposes exactly what is declared, and queries fit it."""

from __future__ import annotations

import re

import pytest

from headrace.monitoring.files import METRICS
from headrace.runtime.metrics import declarations as declared
from headrace.runtime.metrics.declaration import Kind


def test_names_are_declared_once() -> None:
    """No two metrics have the same name, and a counter's name ends in ``_total``, as in Prometheus' text."""
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert all(metric.name.endswith("_total") == (metric.kind is Kind.COUNTER) for metric in METRICS)
    assert all(re.fullmatch(r"(headrace|reselect|kafka_connect)_[a-z_]+[a-z]", name) for name in names)


def test_a_query_selects_series_by_labels() -> None:
    """Values, negated values and expressions become matchers behind those of the scope."""
    assert declared.TABLE_STATE.query("", state="FAILED") == 'headrace_table_state{state="FAILED"}'
    assert declared.TABLE_STATE.query('job="x"', state="!RUNNING") == 'headrace_table_state{job="x",state!="RUNNING"}'
    assert declared.LAG.query("", topic="~a|b") == 'headrace_lag_records{topic=~"a|b"}'
    assert declared.SPARK_UP.query("") == "headrace_spark_up"
    assert declared.WRITE_SECONDS.query("", "bucket") == "headrace_write_seconds_bucket"


def test_a_query_of_a_label_that_does_not_exist_is_refused() -> None:
    """A label or part that the metric does not have is an error with the names that exist."""
    with pytest.raises(
        ValueError, match="headrace_lag_records: has no label table; its labels are connector, task, topi"
    ):
        declared.LAG.query("", table="orders")
    with pytest.raises(ValueError, match="has no samples headrace_write_seconds, but headrace_write_seconds_bucket"):
        declared.WRITE_SECONDS.query("")
