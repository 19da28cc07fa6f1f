"""``python -m headrace_connectors.lakehouse.spark_executor``: the command of an executor's container.

Spark's own images start executors by a script that PySpark does not contain (``entrypoint.sh``). This does the same in
the worker's image, so that driver and executors have the same Java, Spark and Scala. Spark gives the pod its variables
(``BasicExecutorFeatureStep``) and the argument ``executor``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from headrace_connectors.lakehouse.spark_environment import user_environment
from headrace_connectors.lakehouse.spark_settings import LOG_CONFIG

_MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = "SPARK_JAVA_OPT_"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(variables: Mapping[str, str], spark_home: Path) -> list[str]:
    """Return the process arguments of the executor. Raises SystemExit if Spark has not set its variables."""
    lacking = [name for name in (*_ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY") if name not in variables]
    if lacking:
        raise SystemExit(f"{', '.join(lacking)}: not set; Spark starts executors by itself (spark.master=k8s://...)")
    numbered = {int(name[len(_OPTION) :]): text for name, text in variables.items() if name.startswith(_OPTION)}
    options = [numbered[number] for number in sorted(numbered)]
    if not any("log4j2.configurationFile" in option for option in options):
        options.append(f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}")
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    class_path = [variables.get("SPARK_EXTRA_CLASSPATH", ""), f"{spark_home}/jars/*"]
    java = Path(variables["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in variables else Path("java")
    return [
        *(str(java), f"-Xms{memory}", f"-Xmx{memory}", *options),
        *("-cp", os.pathsep.join(filter(None, class_path)), _MAIN),
        *(word for option, name in _ARGUMENTS.items() for word in (option, variables[name])),
    ]


def main() -> None:
    """Become the executor: under a user that has a name, and in a folder that it may write, for the driver's jars."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SystemExit("pyspark is not installed")
    arguments = command(os.environ, Path(spec.origin).parent)
    local_folders = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    os.chdir(tempfile.mkdtemp(prefix="executor-", dir=local_folders.split(",")[0]))
    os.execvpe(arguments[0], arguments, {**os.environ, **user_environment(os.getuid())})  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
