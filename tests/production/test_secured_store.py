"""An object store as clouds have it: TLS, a host for each bucket, a role instead of keys, encryption at rest."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from chaos.lane import Lane
from production.object_lake import ObjectLake
from production.store_log import values
from support.servers.certificates import Authority

from headrace_dev.object_store import ObjectStore
from headrace_dev.server import LOOPBACK, wait_until
from headrace_dev.spark_cluster import SparkCluster
from headrace_dev.stack import Stack
from headrace_dev.web_identity import WebIdentity
from headrace_dev.worker import SHORT_LIVED

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.production, pytest.mark.long]

DOMAIN = "s3.test"
LAKE = "spark.sql.catalog.lake"
CREDENTIAL_SECONDS = 90.0
"""AWS's SDK renews credentials in their last five minutes: these with each request."""


@pytest.fixture
def authority() -> Authority:
    """The authority of the store's certificate, which no system trusts."""
    return Authority("object store")


@pytest.fixture
def store(tmp_path: Path, authority: Authority) -> Iterator[ObjectStore]:
    """A running store with TLS for ``DOMAIN`` and the hosts in it."""
    certificate, key = tmp_path / "store.crt", tmp_path / "store.key"
    identity = authority.issue("store", DOMAIN, f"*.{DOMAIN}")
    certificate.write_bytes(identity.certificate_pem())
    key.write_bytes(identity.pem())
    store = ObjectStore(tmp_path, sessions=True, tls=(DOMAIN, certificate, key), names_headers=True)
    store.start()
    yield store
    store.stop()


@pytest.fixture
def identity(store: ObjectStore, tmp_path: Path) -> Iterator[WebIdentity]:
    """The service that exchanges a token in a file for credentials."""
    token = tmp_path / "service-account-token"
    token.write_text("the token of a service account")
    assert store.sessions is not None
    service = WebIdentity(store.sessions, token, CREDENTIAL_SECONDS)
    service.start()
    yield service
    service.stop()


class CloudLake(ObjectLake):
    """A warehouse in the bucket's own host, without keys."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The keys of the worker: the example, without those of another server than AWS."""
        kept = {name: value for name, value in super().properties.items() if not name.startswith(f"{LAKE}.s3.")}
        return kept | {f"{LAKE}.s3.endpoint": self.store.endpoint, f"{LAKE}.s3.sse.type": "s3"}


def hosts_option(folder: Path, store: ObjectStore) -> Mapping[str, str]:
    """The option of the JVM by which it finds the hosts of the domain, as a DNS server would say."""
    hosts = folder / "hosts"
    names = (DOMAIN, f"{store.bucket}.{DOMAIN}", "localhost", socket.gethostname())
    hosts.write_text("".join(f"{LOOPBACK} {name}\n" for name in names))
    name = "spark.driver.extraJavaOptions"
    return {name: f"{SHORT_LIVED[name]} -Djdk.net.hosts.file={hosts}"}


def trusted(authority: Authority, folder: Path) -> Mapping[str, str]:
    """The option of the worker that trusts ``authority``."""
    file = folder / "ca.crt"
    file.write_bytes(authority.pem())
    return {"jvm.ssl.truststore.location": str(file)}


def test_a_store_as_in_a_cloud(
    stack: Stack, store: ObjectStore, identity: WebIdentity, authority: Authority, tmp_path: Path
) -> None:
    """Tables equal the database, with credentials that are renewed; each new object is to be encrypted."""
    lake = CloudLake(store, stack.postgres, "cloudlake")
    worker = hosts_option(tmp_path, store) | trusted(authority, tmp_path)
    with Lane(stack, "cloud", tmp_path, lake=lake, worker=worker, environment=identity.environment) as lane:
        lane.begin_load()
        wait_until(lambda: len(lane.rows("orders")) > 0, "first rows", 180)
        ended = identity.ends[-1]  # all that the tables have now
        wait_until(lambda: time.time() > ended, "the end of the first credentials", 2 * CREDENTIAL_SECONDS, 1)
        assert lane.prove() > 0
        assert lane.worker.tables(lane.name) == []
    assert identity.refused == 0
    assert {host.partition(":")[0] for host in values(store, "Host")} == {f"{store.bucket}.{DOMAIN}"}
    encrypted = values(store, "X-Amz-Server-Side-Encryption").count("AES256")
    assert encrypted >= len(store.objects("**/*")) > 0
    assert max(identity.ends) > ended
    print(f"credentials were issued {len(identity.ends)} times, and {encrypted} objects were to be encrypted")


def test_an_authority_that_is_not_trusted_is_named(
    stack: Stack, store: ObjectStore, identity: WebIdentity, tmp_path: Path
) -> None:
    """The tables are retried with a message that names the option."""
    lake = CloudLake(store, stack.postgres, "strangelake")
    worker = hosts_option(tmp_path, store) | trusted(Authority("another one"), tmp_path)
    with Lane(stack, "strange", tmp_path, lake=lake, worker=worker, environment=identity.environment) as lane:
        wait_until(lambda: "jvm.ssl.truststore.location" in lane.worker.traces(lane.name), "the cause", 120)
        assert {table["state"] for table in lane.worker.tables(lane.name)} == {"RETRYING"}


class ClusterLake(ObjectLake):
    """The warehouse at an address that processes without a hosts file know, with keys."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The keys of the worker: the example."""
        return super().properties | {f"{LAKE}.s3.endpoint": self.store.endpoint.replace(DOMAIN, LOOPBACK)}


def test_executors_of_a_cluster_trust_the_authority(
    stack: Stack, store: ObjectStore, authority: Authority, tmp_path: Path
) -> None:
    """They are other processes in other folders, with certificates that Spark has sent to them."""
    cluster = SparkCluster(tmp_path)
    lake = ClusterLake(store, stack.postgres, "clusterlake")
    worker = cluster.settings | trusted(authority, tmp_path)
    try:
        cluster.start()
        with Lane(stack, "trusting", tmp_path, lake=lake, worker=worker) as lane:
            lane.begin_load()
            wait_until(lambda: len(lane.rows("orders")) > 0, "first rows", 180)
            executors = cluster.executors()
            assert len(executors) == 2
            assert all(b"-Djavax.net.ssl.trustStore=" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in executors)
            assert lane.prove() > 0
            assert lane.worker.tables(lane.name) == []
    finally:
        cluster.stop()
