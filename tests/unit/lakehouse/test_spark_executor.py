"""The command of an executor's container, from the variables that Spark gives to its pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_connectors.lakehouse.spark_executor import command

VARIABLES = {
    "JAVA_HOME": "/opt/java",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_EXECUTOR_POD_NAME": "headrace-1-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def test_the_variables_of_spark_become_arguments() -> None:
    """As in the script of Spark's own image."""
    arguments = command(VARIABLES, Path("/spark"))
    assert arguments[:3] == ["/opt/java/bin/java", "-Xms1024m", "-Xmx1024m"]
    main = arguments.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert arguments[main - 2 : main] == ["-cp", "/spark/jars/*"]
    given = dict(zip(arguments[main + 1 :: 2], arguments[main + 2 :: 2], strict=True))
    assert given == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "headrace-1-exec-3",
    }


def test_java_options_keep_their_order() -> None:
    """The tenth comes behind the ninth; a configuration of the log replaces the executor's own."""
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in reversed(range(11))}
    arguments = command({**VARIABLES, **options}, Path("/spark"))
    assert [each for each in arguments if each.startswith("-Dn=")] == [f"-Dn={number}" for number in range(11)]
    assert any("log4j2.properties" in each for each in arguments)
    theirs = {"SPARK_JAVA_OPT_0": "-Dlog4j2.configurationFile=/mine", "SPARK_EXTRA_CLASSPATH": "/more/*"}
    arguments = command({**VARIABLES, **theirs}, Path("/spark"))
    assert not any("log4j2.properties" in each for each in arguments)
    assert "/more/*:/spark/jars/*" in arguments


def test_outside_of_a_pod_the_missing_variables_are_named() -> None:
    """It is no command for people."""
    with pytest.raises(SystemExit, match="SPARK_EXECUTOR_ID: not set; Spark starts executors by itself"):
        command({name: text for name, text in VARIABLES.items() if name != "SPARK_EXECUTOR_ID"}, Path("/spark"))
