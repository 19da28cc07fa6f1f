"""Servers of the stack as pods of ``kubernetes.py`` reach them: the servers stay on 127.0.0.1, a proxy is in between.

The cluster's name server resolves ``host.internal`` to the address of this machine in the network of the pods.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from headrace_dev.go_tools import tool
from headrace_dev.kafka import Kafka
from headrace_dev.kubernetes import Cluster
from headrace_dev.server import LOOPBACK, Server, accepts, free_ports, http
from headrace_dev.stack import Stack
from headrace_dev.versions import TOXIPROXY

HOST = "host.internal"
_ADDRESS = "10.244.0.1"


class Gateway:
    """Makes ports of 127.0.0.1 reachable for pods, under the same numbers. The cluster must run."""

    def __init__(self, root: Path) -> None:
        folder = root.resolve() / "gateway"
        folder.mkdir()
        [self._control] = free_ports(1)
        program = tool("server", "github.com/Shopify/toxiproxy/v2/cmd/server", TOXIPROXY)
        self._server = Server("gateway", [str(program), "-host", LOOPBACK, "-port", str(self._control)], folder)

    def start(self) -> None:
        """Start without a port."""
        self._server.start(lambda: accepts(self._control))

    def stop(self) -> None:
        """Close all ports."""
        self._server.kill()

    def open(self, port: int) -> str:
        """Let pods reach a port of 127.0.0.1, and return the address that they use."""
        proxy = {"name": str(port), "listen": f"{_ADDRESS}:{port}", "upstream": f"{LOOPBACK}:{port}"}
        http.post(f"http://{LOOPBACK}:{self._control}/proxies", json=proxy, timeout=10).raise_for_status()
        return f"{HOST}:{port}"


def open_api(cluster: Cluster, gateway: Gateway) -> None:
    """Let pods call the Kubernetes API at ``kubernetes.default.svc``, which has no endpoint in this cluster."""
    server = cluster.kubectl("config", "view", "--output=jsonpath={.clusters[0].cluster.server}")
    port = int(server.rpartition(":")[2])
    gateway.open(port)
    cluster.apply(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [_ADDRESS]}],
        }
    )


class PodKafka(Kafka):
    """A broker with a second listener, which it advertises under the name that pods use.

    ``pod_servers`` are the bootstrap servers of pods; a gateway has to open ``pod_port``.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        [self.pod_port] = free_ports(1)
        self.pod_servers = f"{HOST}:{self.pod_port}"
        self._settings["listeners"] += f",PODS://{LOOPBACK}:{self.pod_port}"
        self._settings["advertised.listeners"] += f",PODS://{self.pod_servers}"
        self._settings["listener.security.protocol.map"] += ",PODS:PLAINTEXT"


class PodStack(Stack):
    """A stack whose broker pods can use."""

    @cached_property
    def kafka(self) -> PodKafka:
        """The broker."""
        return PodKafka(self.root)
