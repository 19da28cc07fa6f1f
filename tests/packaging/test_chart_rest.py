"""The REST API by values: the worker serves what the pods mount, and probes and monitors reach it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.repository.rendered_chart import CHART, MINIMAL, container, manifest, pod, properties, refused, rendered
from support.servers.certificates import Authority

from headrace.config import WorkerConfig
from headrace.config.rest_options import user_roles
from headrace.config.tls import server_context
from headrace.core.connect.properties import parse_properties
from headrace_app.command import worker_config

HTTPS = CHART / "ci" / "https-values.yaml"
ADMIN = CHART / "ci" / "admin-values.yaml"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def config_of(values: Path, folder: Path) -> WorkerConfig:
    """What the worker reads of the rendered options."""
    file = folder / "worker.properties"
    file.write_text(properties(values))
    return worker_config(file, distributed=True)


def test_https_is_served_from_the_secret(tmp_path: Path) -> None:
    """The options name files that cert-manager's Secret has, below the folder where the pod mounts it."""
    read = parse_properties(properties(HTTPS))
    mounts = {mount["name"]: mount["mountPath"] for mount in container(HTTPS)["volumeMounts"]}
    volumes = {each["name"]: each["secret"]["secretName"] for each in pod(HTTPS)["spec"]["volumes"] if "secret" in each}
    assert volumes["rest-tls"] == "headrace-tls"
    assert read["listeners"] == "https://:8083"
    own = Authority().issue("worker")
    (tmp_path / "tls.key").write_bytes(own.pem().removesuffix(own.certificate_pem()))
    (tmp_path / "tls.crt").write_bytes(own.certificate_pem())
    (tmp_path / "ca.crt").write_bytes(Authority().pem())
    local = {name: value.replace(mounts["rest-tls"], str(tmp_path)) for name, value in read.items()}
    assert server_context(local, "listeners.https.ssl.")


def test_users_and_tokens_are_those_of_the_values(tmp_path: Path) -> None:
    """Users come from the mounted file, roles and the issuer from the values."""
    config = config_of(HTTPS, tmp_path)
    read = parse_properties(properties(HTTPS))
    mounts = {mount["name"]: mount["mountPath"] for mount in container(HTTPS)["volumeMounts"]}
    assert read["rest.basic.auth.file"] == f"{mounts['rest-users']}/users.properties"
    assert dict(user_roles(read["rest.basic.auth.roles"].split(","))) == {"grafana": "read", "oncall": "operate"}
    assert read["rest.oauth.ssl.truststore.location"] == f"{mounts['oauth-tls']}/ca.crt"
    assert read["rest.oauth.roles.read"] == "headrace-read,staff"
    assert config.oauth.issuer == "https://keycloak.example.com/realms/data"
    assert config.oauth.audience == ("headrace",)
    assert config.oauth.admin_roles == ("headrace-admin",)


def test_probes_use_https() -> None:
    """The kubelet verifies no certificate, so probes need none."""
    for probe in PROBES:
        get = container(HTTPS)[probe]["httpGet"]
        assert (get["scheme"], get["port"]) == ("HTTPS", "rest-api")
    own = ("--set-json", 'livenessProbe={"exec": {"command": ["true"]}}')
    assert "httpGet" not in container(HTTPS, *own)["livenessProbe"]


def test_probes_and_monitors_use_the_admin_port(tmp_path: Path) -> None:
    """They have no client certificate, and the port needs none."""
    config = config_of(ADMIN, tmp_path)
    [listener] = config.admin_listeners
    assert listener.scheme == "http"
    ports = {port["name"]: port["containerPort"] for port in container(ADMIN)["ports"]}
    assert ports == {"rest-api": 8083, "admin": listener.port}
    for probe in PROBES:
        get = container(ADMIN)[probe]["httpGet"]
        assert (get["scheme"], get["port"]) == ("HTTP", "admin")
    [endpoint] = manifest("PodMonitor", ADMIN)["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == ("admin", "http")
    assert "tlsConfig" not in endpoint
    assert endpoint["authorization"]["credentials"] == {"name": "headrace-scraper", "key": "token"}
    service = {port["name"]: port["targetPort"] for port in manifest("Service", ADMIN)["spec"]["ports"]}
    assert service == {"rest-api": "rest-api", "admin": "admin"}


def test_prometheus_verifies_the_certificate() -> None:
    """The monitor names the authority and the Service's name, because certificates have no addresses of pods."""
    monitor = manifest("ServiceMonitor", HTTPS)["spec"]
    [endpoint] = monitor["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "ca": {"secret": {"name": "headrace-tls", "key": "ca.crt"}},
        "serverName": "lake.data.svc",
    }
    assert endpoint["basicAuth"]["password"] == {"name": "headrace-scraper", "key": "password"}


def test_a_monitor_finds_each_worker_once() -> None:
    """Of the two Services of a StatefulSet, one has a port of the monitor's name."""
    monitor = manifest("ServiceMonitor", HTTPS)["spec"]
    selected = [
        each["metadata"]["name"]
        for each in rendered(HTTPS)
        if each["kind"] == "Service"
        and monitor["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
        and monitor["endpoints"][0]["port"] in {port["name"] for port in each["spec"]["ports"]}
    ]
    assert selected == ["lake"]


@pytest.mark.parametrize(
    ("values", "url", "trust"),
    [
        (MINIMAL, "http://hr-headrace.data.svc:8083/health", False),
        (HTTPS, "https://lake.data.svc:8083/health", True),
        (ADMIN, "http://hr-headrace.data.svc:8084/health", False),
    ],
)
def test_helm_test_reaches_the_worker(values: Path, url: str, trust: bool) -> None:
    """The test's pod uses the right scheme, port and authority, and its program compiles."""
    spec = manifest("Pod", values)["spec"]
    program = spec["containers"][0]["command"][2]
    assert f'url = "{url}"' in program
    subprocess.run([sys.executable, "-c", f"compile({program!r}, 'test', 'exec')"], check=True)
    assert ("/tls/ca.crt" in program) is trust
    assert ("volumes" in spec) is trust


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("rest.tls.clientAuth=required", "needs rest.tls.existingSecret"),
        ("rest.tls.existingSecret=t,rest.tls.clientAuth=required", "probes have no certificate"),
        ("rest.tls.existingSecret=t,worker.config.listeners=https://:1", "set only one of them"),
        ("rest.tls.existingSecret=t,replicaCount=2,worker.config.warehouse=s3://a/b", "needs workload: StatefulSet"),
        ("rest.tls.existingSecret=t,existingConfigMap=mine", "rest and existingConfigMap"),
        ("rest.oauth.issuer=https://a", "needs rest.oauth.audience"),
        ("rest.basicAuth.roles.ann=owner", "roles/ann"),
        ("rest.ssl=true", "'ssl' not allowed"),
        ("serviceMonitor.tlsConfig.ca_file=x", "'ca_file' not allowed"),
    ],
)
def test_an_api_that_nobody_could_reach_is_refused(arguments: str, message: str) -> None:
    """Helm names what else to set."""
    assert message in refused(MINIMAL, "--set", arguments)
