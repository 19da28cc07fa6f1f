"""The cluster, the broker and the database that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from headrace_dev.kubernetes import Cluster, missing
from headrace_dev.pod_network import Gateway, PodKafka, PodStack


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running Kubernetes of one node; skips with the reason where it cannot run."""
    if reason := missing():
        pytest.skip(reason)
    cluster = Cluster()
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def image(cluster: Cluster) -> Callable[[str], str]:
    """Return a function that loads a variant of the image once, and returns its name; it skips if there is none."""

    @cache
    def load(variant: str) -> str:
        if reason := missing(variant):
            pytest.skip(reason)
        return cluster.load(variant)

    return load


@pytest.fixture(scope="session")
def pod_stack(request: pytest.FixtureRequest) -> Iterator[PodStack]:
    """A stack in which no server runs yet."""
    stack = PodStack()
    yield stack
    stack.stop(failed=request.session.testsfailed > 0)


@pytest.fixture(scope="session")
def gateway(cluster: Cluster, pod_stack: PodStack) -> Iterator[Gateway]:
    """The way of the pods to servers of this machine."""
    gateway = Gateway(pod_stack.root)
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture(scope="session")
def broker(pod_stack: PodStack, gateway: Gateway) -> PodKafka:
    """A broker that pods can reach; ``pod_servers`` is its address for them."""
    pod_stack.start("kafka")
    gateway.open(pod_stack.kafka.pod_port)
    return pod_stack.kafka
