"""The Helm chart: Kubernetes accepts the rendered manifests, and the worker accepts the configuration of the pod."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from support.repository.rendered_chart import (
    CHART,
    MINIMAL,
    ROOT,
    Manifest,
    container,
    default_values,
    in_every_case,
    manifest,
    pod,
    properties,
    rendered,
    run_helm,
)

from headrace import __version__
from headrace.config.directory_options import DirectorySettings
from headrace.config.engine import EngineSettings
from headrace.config.validation import WorkerDefaults, validate
from headrace.core.connect.lifecycle import TargetState
from headrace.core.connect.properties import parse_properties, properties_from_environment
from headrace.core.connect.typed_options import parse_options
from headrace.runtime.worker.connector_files import read_connector, read_folder
from headrace.runtime.worker.memory_plan import LEAST_BYTES, PYTHON_BYTES
from headrace_app.command import worker_config
from headrace_connectors.lakehouse.spark_settings import JvmMemory
from headrace_dev.versions import KUBERNETES

CUSTOM_RESOURCES = ROOT / "tests" / "fixtures" / "custom-resources"
DEFAULTS = WorkerDefaults(converters={}, version=__version__)


@in_every_case
def test_lint_finds_nothing(values: Path) -> None:
    """Warnings count as errors; lint also checks the values against their schema."""
    answer = run_helm("lint", values, "--strict")
    assert answer.returncode == 0, answer.stdout


@in_every_case
def test_kubernetes_takes_every_manifest(values: Path) -> None:
    """Kubernetes and the operators validate strictly: a field that the schema lacks is an error."""
    for found in rendered(values):
        schema = CUSTOM_RESOURCES / f"{found['kind']}.json"
        if schema.exists():
            jsonschema.validate(found, closed(json.loads(schema.read_text())))
        else:
            kubernetes_validate.validate(found, KUBERNETES, strict=True)


def closed(schema: Manifest) -> Manifest:
    """A schema of a custom resource that refuses unknown fields, as ``fieldValidation=Strict`` does."""
    own = {key: value for key, value in schema.items() if key != "properties"}
    if own.get("pattern", "").startswith("^(?i)"):  # the syntax of Go
        own["pattern"] = own["pattern"].replace("^(?i)", "(?i)^")
    if own.get("x-kubernetes-int-or-string"):
        own.pop("type", None)
    if "items" in own:
        own["items"] = closed(own["items"])
    if "properties" in schema:
        own["properties"] = {name: closed(each) for name, each in schema["properties"].items()}
        own.setdefault("additionalProperties", False)
    if own.get("type") == "object" and list(own) == ["type"]:
        own = {}  # metadata, which is Kubernetes' own
    return own


@in_every_case
def test_the_worker_takes_its_configuration(values: Path, tmp_path: Path) -> None:
    """All options that the chart writes exist, and no required one is missing."""
    file = tmp_path / "worker.properties"
    file.write_text(properties(values))
    mode = container(values)["args"][0]
    config = worker_config(file, distributed=mode == "connect-distributed")
    assert config.listener.port == container(values)["ports"][0]["containerPort"]


def test_options_arrive_as_they_were_set(tmp_path: Path) -> None:
    """Backslashes, spaces, line ends, large numbers and booleans survive YAML, Helm and the properties file."""
    options = {
        "spark.text": " C:\\new\tline\nand = so: on # ü",
        "spark.number": 67108864,
        "spark.fraction": 0.6,
        "spark.switch": False,
        "spark.list": ["a", "b"],
    }
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"kafka": {"bootstrapServers": "k:1"}, "worker": {"config": options}}))
    read = parse_properties(properties(values))
    assert {name: read[name] for name in options} == {
        "spark.text": " C:\\new\tline\nand = so: on # ü",
        "spark.number": "67108864",
        "spark.fraction": "0.6",
        "spark.switch": "false",
        "spark.list": "a,b",
    }


def connector_files(values: Path) -> dict[str, str]:
    """The files in the Secret of connectors."""
    return {name: b64decode(content).decode() for name, content in manifest("Secret", values)["data"].items()}


def test_connectors_arrive_as_they_were_set(tmp_path: Path) -> None:
    """In standalone mode the worker reads each connector from its file, and the configuration is valid."""
    values = CHART / "ci" / "standalone-values.yaml"
    files = connector_files(values)
    mounted = [Path(path) for path in container(values)["args"][3:]]
    assert [path.name for path in mounted] == sorted(files)
    for path in mounted:
        (tmp_path / path.name).write_text(files[path.name])
        name, config, _ = read_connector(tmp_path / path.name)
        assert name == path.stem
        assert validate({**config, "name": name}, DEFAULTS).errors() == []
    _, shop, state = read_connector(tmp_path / "shop.json")
    assert state is TargetState.PAUSED
    assert shop["batch.max.bytes"] == "134217728"
    assert shop["topics.regex"] == r"shop\.public\..*"


def test_distributed_workers_follow_the_connectors(tmp_path: Path) -> None:
    """The Secret is mounted as connectors.directory, without subPath: the kubelet would not update that."""
    values = CHART / "ci" / "connectors-values.yaml"
    secret = manifest("Secret", values)
    [mount] = [each for each in container(values)["volumeMounts"] if each["name"] == "connectors"]
    [volume] = [each for each in pod(values)["spec"]["volumes"] if each["name"] == "connectors"]
    assert volume["secret"] == {"secretName": secret["metadata"]["name"]}
    assert "subPath" not in mount
    assert directory_of(values).folder == mount["mountPath"]
    assert directory_of(values).delete_all
    for file, text in connector_files(values).items():
        (tmp_path / file).write_text(text)
    files = read_folder(tmp_path)
    assert files.problems == {}
    assert {each.name: each.initial for each in files.connectors} == {
        "billing": TargetState.STARTED,
        "shop": TargetState.PAUSED,
    }
    shop = files.connectors[1].config
    assert (shop["batch.max.bytes"], shop["tasks.max"]) == ("134217728", "2")
    assert shop["reselect.database.password"] == "${env:SHOP_PASSWORD}"


def test_changed_connectors_replace_no_distributed_pod() -> None:
    """The worker follows the mounted files, so helm upgrade restarts nothing; a standalone worker reads them once."""

    def template(values: Path, *arguments: str) -> Manifest:
        return pod(values, *arguments)

    change = ("--set", "connectors.shop.config.topics=a")
    assert template(MINIMAL, *change) == template(MINIMAL)
    standalone = CHART / "ci" / "standalone-values.yaml"
    changed = ("--set", r"connectors.billing.config.tasks\.max=3")
    assert template(standalone, *changed) != template(standalone)


def test_the_last_connector_can_be_removed() -> None:
    """Without connectors the folder is mounted and empty, so that the worker deletes what it has created from it.

    Helm removes entries of ``data`` only: what ``stringData`` had before stays in the Secret.
    """
    secret = manifest("Secret", MINIMAL)
    assert secret["data"] == {}
    assert "stringData" not in secret
    assert directory_of(MINIMAL).folder == "/etc/headrace/connectors"


def test_a_folder_of_the_user_replaces_that_of_the_chart() -> None:
    """The chart then mounts nothing, and an empty folder deletes nothing by default."""
    arguments = ("--set", r"worker.config.connectors\.directory=/git/connectors")
    assert directory_of(MINIMAL, *arguments).folder == "/git/connectors"
    assert not directory_of(MINIMAL, *arguments).delete_all
    assert "Secret" not in {found["kind"] for found in rendered(MINIMAL, *arguments)}
    assert "connectors" not in {mount["name"] for mount in container(MINIMAL, *arguments)["volumeMounts"]}


def test_a_secret_of_the_user_is_the_folder() -> None:
    """The chart creates no Secret, and needs no list of keys in distributed mode."""
    arguments = ("--set", "existingConnectorsSecret=mine")
    [volume] = [each for each in pod(MINIMAL, *arguments)["spec"]["volumes"] if each["name"] == "connectors"]
    assert volume["secret"] == {"secretName": "mine"}
    assert "Secret" not in {found["kind"] for found in rendered(MINIMAL, *arguments)}


def test_connectors_beside_a_configmap_of_the_user() -> None:
    """The chart does not write the worker's options then, and passes the folder in the environment."""
    both = ("--set", "existingConfigMap=mine,connectors.shop.config.topics=a")
    environment = {entry["name"]: entry.get("value", "") for entry in container(MINIMAL, *both)["env"]}
    passed = properties_from_environment(environment)
    assert passed["connectors.directory"] == "/etc/headrace/connectors"
    assert passed["connectors.directory.empty"] == "delete"
    alone = ("--set", "existingConfigMap=mine")
    assert "connectors" not in {mount["name"] for mount in container(MINIMAL, *alone)["volumeMounts"]}
    assert "CONNECT_CONNECTORS_DIRECTORY" not in {entry["name"] for entry in container(MINIMAL, *alone)["env"]}


def directory_of(values: Path, *arguments: str) -> DirectorySettings:
    """What the worker reads of the rendered options."""
    return parse_options(DirectorySettings, parse_properties(properties(values, *arguments)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "kafka.bootstrapServers="], "kafka.bootstrapServers is required"),
        (["--set", "mode=standalone"], "needs connectors"),
        (
            ["--set", r"connectors.shop.config.topics=a,worker.config.connectors\.directory=/x"],
            "set only one of them",
        ),
        (
            ["--set", "existingConnectorsSecret=s", "--set-json", 'existingConnectorsKeys=["a.json"]'],
            "existingConnectorsKeys is for mode: standalone",
        ),
        (["--set", "replicaCount=2,persistence.enabled=true"], "a warehouse that all workers reach"),
        (["--set", "existingConnectorsSecret=s,mode=standalone"], "existingConnectorsKeys is required"),
        (["--set", "replicaCount=2,mode=standalone,connectors.shop.config.topics=a"], "needs mode: distributed"),
        (["--set-json", 'worker.config={"worker.threads": true}'], "worker.threads"),
        (["--set", "kafka.bootstrapServer=k:1"], "'bootstrapServer' not allowed"),
        (["--set", "replicas=2"], "'replicas' not allowed"),
        (["--set", "config.bootstrap.servers=k:1"], "'config' not allowed"),
        (["--set", "persistence.accessMode=x"], "'accessMode' not allowed"),
        (["--set", "mode=standalone,connectors.shop.configs.topics=a"], "'configs' not allowed"),
        (["--set", "mode=cluster"], "mode"),
        (["--set", "worker.config.group.id=lake"], r"write --set 'worker.config.group\.id"),
        (["--set", "mode=standalone,connectors.shop.config.topics.regex=a"], "config/topics': got object"),
        (["--set", "mode=standalone,connectors.shop.config.table.namespace=a"], r"connectors.shop.config.table\.name"),
        (["--set", "replicaCount=2"], "/var/lib/headrace/warehouse is an emptyDir of each pod: set worker.config"),
        (["--set", r"replicaCount=2,worker.config.spark\.master=local[2]"], "is an emptyDir of each pod"),
        (
            ["--set", r"resources.limits.memory=4Gi,worker.config.spark\.driver\.memory=4g"],
            "4Gi is too small: Spark's heap 4096 Mi + other memory of its JVM 1024 Mi + Python 512 Mi",
        ),
        (["--set", r"resources.limits.memory=2G"], "2G is too small"),
        (["--set-json", 'worker.config={"worker.memory.bytes": 4000000000}'], "2 x 3814 Mi"),
        (["--set-json", 'worker.config={"write.index.memory.bytes": 9000000000}'], "key indexes 8583 Mi"),
    ],
)
def test_mistakes_are_refused_before_anything_is_installed(arguments: list[str], message: str) -> None:
    """Helm fails before the installation, with a message that says what to set."""
    answer = run_helm("template", MINIMAL, *arguments)
    assert answer.returncode != 0
    assert message in answer.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "replicaCount=2,worker.config.warehouse=s3://lake/warehouse"],
        ["--set", "replicaCount=2,persistence.enabled=true,persistence.existingClaim=lake"],
        ["--set", "replicaCount=2,persistence.enabled=true", "--set-json", 'persistence.accessModes=["ReadWriteMany"]'],
        ["--set", "replicaCount=2,existingConfigMap=mine"],
        ["--set", r"worker.config.group\.id=lake,image.tag=7,global.region=eu"],
    ],
)
def test_a_warehouse_of_all_workers_is_accepted(arguments: list[str]) -> None:
    """An option with a backslash before each of its dots is accepted as well."""
    answer = run_helm("template", MINIMAL, *arguments)
    assert answer.returncode == 0, answer.stderr


def test_the_platform_may_assign_the_uid() -> None:
    """Values of null remove the image's uid and the groups; the rest of the context stays."""
    context = pod(CHART / "ci" / "openshift-values.yaml")["spec"]["securityContext"]
    assert context.keys() == default_values()["podSecurityContext"].keys() - {"runAsUser", "runAsGroup", "fsGroup"}


@in_every_case
def test_pods_give_nothing_away(values: Path) -> None:
    """The container does not run as root, cannot gain privileges, and cannot write to the image."""
    workloads = [manifest["spec"] for manifest in rendered(values) if manifest["kind"] == "Pod"]
    for spec in (pod(values)["spec"], *workloads):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        context = spec["containers"][0]["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


@in_every_case
def test_what_the_worker_writes_is_on_volumes(values: Path) -> None:
    """The warehouse, Spark's and Python's temporary folders and /tmp are on volumes."""
    mounts = {mount["mountPath"] for mount in container(values)["volumeMounts"] if not mount.get("readOnly")}
    environment = {entry["name"]: entry.get("value") for entry in container(values)["env"]}
    assert {"/tmp", environment["TMPDIR"], environment["SPARK_LOCAL_DIRS"]} <= mounts  # noqa: S108 - in the pod
    warehouse = parse_properties(properties(values))["warehouse"]
    assert "://" in warehouse or str(Path(warehouse).parent) in mounts


def test_secrets_are_referred_to() -> None:
    """No ConfigMap and no argument contains a password, which the Secret of connectors has."""
    values = CHART / "ci" / "standalone-values.yaml"
    assert [found["kind"] for found in rendered(values) if "not a real one" in json.dumps(found)] == []
    assert "not a real one" in "".join(connector_files(values).values())


def test_a_changed_configuration_makes_a_new_pod() -> None:
    """An upgrade that changes no option restarts no worker."""

    def checksum(*arguments: str) -> str:
        text: str = pod(MINIMAL, *arguments)["metadata"]["annotations"]["checksum/config"]
        return text

    assert checksum("--set-json", 'worker.config={"worker.threads": 5}') != checksum()
    assert checksum("--set", "service.port=80") == checksum()


def test_probes_wait_longer_than_the_worker_thinks() -> None:
    """A busy worker may answer after some seconds. Only what a restart repairs restarts a pod, also while it starts."""
    paths = {"startupProbe": "/health/live", "livenessProbe": "/health/live", "readinessProbe": "/health/ready"}
    for probe, path in paths.items():
        assert container(MINIMAL)[probe]["httpGet"] == {"path": path, "port": "rest-api", "scheme": "HTTP"}
    for probe in ("livenessProbe", "readinessProbe"):
        assert container(MINIMAL)[probe]["timeoutSeconds"] > 10


@pytest.mark.parametrize("limit", ["2816Mi", "3Gi", "3000M", "2952790016"])
def test_the_least_memory_limit_is_that_of_the_workers_plan(limit: str) -> None:
    """The chart refuses no limit with which the worker's parts fit, and accepts none with which they do not."""
    planned = JvmMemory.plan(None, "", 0)
    least = sum(planned.parts().values()) + PYTHON_BYTES + EngineSettings().index_bytes + 2 * LEAST_BYTES
    assert least == 2816 * 1024 * 1024
    pod(MINIMAL, "--set-string", f"resources.limits.memory={limit}")
    assert run_helm("template", MINIMAL, "--set", "resources.limits.memory=2815Mi").returncode != 0


def test_services_and_tests_find_only_workers() -> None:
    """The test's pod is no endpoint of the service that it tests."""
    selector = manifest("Service", MINIMAL)["spec"]["selector"].items()
    assert selector <= pod(MINIMAL)["metadata"]["labels"].items()
    assert not selector <= manifest("Pod", MINIMAL)["metadata"]["labels"].items()


def test_chart_image_and_service_belong_together() -> None:
    """Chart and image have one version and one user."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert chart["version"] == __version__.replace(".dev", "-dev.")  # Helm accepts SemVer only
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    context = default_values()["podSecurityContext"]
    assert user is not None
    assert (int(user[1]), int(user[2])) == (context["runAsUser"], context["runAsGroup"])
