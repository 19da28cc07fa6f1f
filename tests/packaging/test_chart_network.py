"""Who reaches the workers, and how many there are."""

from __future__ import annotations

from support.repository.rendered_chart import CHART, MINIMAL, Manifest, manifest, pod, refused, rendered, workload

VALUES = CHART / "ci" / "autoscaled-values.yaml"
POLICY = ("--set", "networkPolicy.enabled=true")


def admitted(policy: Manifest, port: str) -> list[Manifest]:
    """The peers that the policy admits at a port."""
    rules = policy["spec"]["ingress"]
    return [peer for rule in rules if port in {each["port"] for each in rule["ports"]} for peer in rule["from"]]


def test_only_labelled_pods_and_workers_reach_the_api() -> None:
    """Workers forward to each other; of other pods those with the client's label are admitted, as helm test's."""
    policy = manifest("NetworkPolicy", MINIMAL, *POLICY)
    assert policy["spec"]["podSelector"] == workload(MINIMAL)["spec"]["selector"]
    client = {"hr-headrace-client": "true"}
    workers = workload(MINIMAL)["spec"]["selector"]["matchLabels"]
    peers = [peer["podSelector"]["matchLabels"] for peer in admitted(policy, "rest-api")]
    assert peers == [workers, client]
    assert client.items() <= manifest("Pod", MINIMAL)["metadata"]["labels"].items()
    assert workers.items() <= pod(MINIMAL)["metadata"]["labels"].items()
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert "NetworkPolicy" not in {found["kind"] for found in rendered(MINIMAL)}


def test_prometheus_reaches_only_the_metrics() -> None:
    """With an admin port, the namespace of Prometheus is admitted there and not at the REST API."""
    policy = manifest("NetworkPolicy", VALUES)
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert monitoring in admitted(policy, "admin")
    assert monitoring not in admitted(policy, "rest-api")
    ports = {port["name"] for port in pod(VALUES)["spec"]["containers"][0]["ports"]}
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == ports


def test_given_egress_leaves_names_and_workers() -> None:
    """Otherwise a worker would find no broker, and could not forward."""
    policy = manifest("NetworkPolicy", VALUES)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    [names, workers, given] = policy["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert workers == {"to": [{"podSelector": policy["podSelector"]}]}
    assert given == {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}


def test_the_ingress_leads_to_the_api() -> None:
    """Its backend is a port of the Service."""
    ingress = manifest("Ingress", VALUES)["spec"]
    [rule] = ingress["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    service = manifest("Service", VALUES)
    assert rule["host"] == "connect.data.example.com"
    assert backend["name"] == service["metadata"]["name"]
    assert backend["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    assert ingress["tls"] == [{"secretName": "connect-example-com", "hosts": ["connect.data.example.com"]}]
    assert "needs ingress.hosts" in refused(MINIMAL, "--set", "ingress.enabled=true")


def test_an_autoscaler_owns_the_number_of_workers() -> None:
    """The workload has no number, which each upgrade would set again."""
    scaler = manifest("HorizontalPodAutoscaler", VALUES)["spec"]
    found = workload(VALUES)
    assert "replicas" not in found["spec"]
    target = scaler["scaleTargetRef"]
    assert (target["apiVersion"], target["kind"]) == (found["apiVersion"], found["kind"])
    assert target["name"] == found["metadata"]["name"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 6)
    assert "needs replicaCount: null" in refused(MINIMAL, "--set", "autoscaling.enabled=true")


def test_keda_scales_the_workload() -> None:
    """KEDA's target is a Deployment by default; the trigger reads the connector's group."""
    values = CHART / "ci" / "keda-values.yaml"
    scaled = manifest("ScaledObject", values)["spec"]
    found = workload(values)
    assert scaled["scaleTargetRef"]["name"] == found["metadata"]["name"]
    assert found["kind"] == "Deployment"
    assert "replicas" not in found["spec"]
    assert scaled["triggers"][0]["metadata"]["bootstrapServers"] == "kafka:9092"
