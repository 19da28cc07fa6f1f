"""The versions of the external software in the development stack.

A bundle is a folder of files that one JVM puts on its class path, or one archive. Python packages have their versions
in ``pyproject.toml``; those of Iceberg and Delta are in the service, which needs them without this package. After a
change run ``make lock``: ``jars.sha256`` pins every file of every bundle.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace_connectors.lakehouse.spark_jars import PACKAGES

KAFKA = "4.3.1"
DEBEZIUM = "3.7.0.Final"
APICURIO = "2.6.13.Final"  # the schema registry
KEYCLOAK = "26.7.3"  # an OAuth provider, for a long test
NESSIE = "0.99.0"  # an Iceberg REST catalog, for a long test
FLINK = "2.1.2"  # beside which the benchmark ``make scale`` measures
FLINK_KAFKA = "4.0.1-2.0"
FLINK_ICEBERG = "1.11.0"
LOG4J = "2.25.5"
POSTGRESQL = "15"  # Debian's package, where root may install it
HELM = "3.22.0"  # built from its Go module, where there is Go
NESSIE = "0.99.0"  # a REST catalog of Iceberg, for a long test
VERSITYGW = "1.8.0"  # an S3 server, built from its Go module
TOXIPROXY = "2.5.0"  # disturbs connections, built from its Go module
OSV_SCANNER = "2.5.1"  # asks osv.dev for known vulnerabilities, built from its Go module
KUBERNETES = "1.34"  # what the chart's manifests are checked against

AWS_SDK = "2.29.52"  # that of hadoop-aws

JAVA = 17
JAVA_OF_SERVERS = 21
"""What Keycloak and Nessie need."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact of Maven Central. ``transitive`` adds the dependencies that its POM needs at run time."""

    organisation: str
    name: str
    revision: str
    transitive: bool = True
    extension: str = "jar"
    classifier: str | None = None


def _single(coordinates: str) -> Artifact:
    organisation, name, revision = coordinates.split(":")
    return Artifact(organisation, name, revision, transitive=False)


_LOGGING = tuple(
    _single(f"org.apache.logging.log4j:{name}:{LOG4J}")
    for name in ("log4j-api", "log4j-core", "log4j-slf4j-impl", "log4j-1.2-api")
)

# Hadoop's S3 client, without the parts of AWS's SDK that it does not use (its POM asks for 642 MB), and without those
# that Spark has.
_AWS_SDK = (
    *("annotations", "apache-client", "arns", "auth", "aws-core", "aws-query-protocol", "aws-xml-protocol"),
    *("checksums", "checksums-spi", "crt-core", "endpoints-spi", "http-auth", "http-auth-aws"),
    *("http-auth-aws-eventstream", "http-auth-spi", "http-client-spi", "identity-spi", "json-utils", "metrics-spi"),
    *("netty-nio-client", "profiles", "protocol-core", "regions", "retries", "retries-spi", "s3"),
    *("s3-transfer-manager", "sdk-core", "sts", "third-party-jackson-core", "utils"),
)
_HADOOP_S3 = (
    _single("org.apache.hadoop:hadoop-aws:3.4.2"),  # the Hadoop of PySpark
    *(_single(f"software.amazon.awssdk:{name}:{AWS_SDK}") for name in _AWS_SDK),
    _single("software.amazon.eventstream:eventstream:1.0.1"),
    _single("org.reactivestreams:reactive-streams:1.0.4"),
)

BUNDLES: dict[str, tuple[Artifact, ...]] = {
    "kafka": (Artifact("org.apache.kafka", "kafka_2.13", KAFKA), *_LOGGING),
    "connect": (Artifact("org.apache.kafka", "connect-runtime", KAFKA), *_LOGGING),
    "connect-jdbc": (_single("io.debezium:debezium-connector-jdbc:3.6.0.Final"),),  # its transforms, for recorders
    "connect-file": (_single(f"org.apache.kafka:connect-file:{KAFKA}"),),  # FileStreamSink, for recorders
    "debezium-postgres": (Artifact("io.debezium", "debezium-connector-postgres", DEBEZIUM, False, "tar.gz", "plugin"),),
    "apicurio": (Artifact("io.apicurio", "apicurio-registry-app", APICURIO, False, "tar.gz", "all"),),
    "keycloak": (Artifact("org.keycloak", "keycloak-quarkus-dist", KEYCLOAK, False, "tar.gz"),),
    "nessie": (Artifact("org.projectnessie.nessie", "nessie-quarkus", NESSIE, False, classifier="runner"),),
    "lakehouse": tuple(map(_single, PACKAGES)),
    "lakehouse-aws": (_single("org.apache.iceberg:iceberg-aws-bundle:1.12.0"),),  # Iceberg on S3, Glue
    "lakehouse-delta-aws": _HADOOP_S3,  # Delta on S3; not beside lakehouse-aws, which has another version of the SDK
    # For the hand-written stream of the benchmark. Maven Central does not have 4.1.4 of the first two.
    "spark-kafka": (
        _single("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"),
        _single("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"),
        _single("org.apache.kafka:kafka-clients:3.9.1"),
        _single("org.apache.commons:commons-pool2:2.12.1"),
    ),
    # Flink SQL with Iceberg, beside which ``make scale`` measures.
    "flink": (
        *(
            Artifact("org.apache.flink", name, FLINK)
            for name in (
                *("flink-clients", "flink-connector-base", "flink-json"),
                *("flink-table-api-java-bridge", "flink-table-planner_2.12", "flink-table-runtime"),
            )
        ),
        _single(f"org.apache.flink:flink-sql-connector-kafka:{FLINK_KAFKA}"),
        _single(f"org.apache.iceberg:iceberg-flink-runtime-2.1:{FLINK_ICEBERG}"),
        _single("org.apache.hadoop:hadoop-client-api:3.4.2"),
        _single("org.apache.hadoop:hadoop-client-runtime:3.4.2"),
        *_LOGGING,
    ),
}

IMAGE_VARIANTS: dict[str, tuple[str, ...]] = {
    "core": ("lakehouse",),
    "aws": ("lakehouse", "lakehouse-aws"),
}
"""The bundles in the jars of each variant of the image (``--build-arg VARIANT=aws``)."""
ON_DEMAND = frozenset({"flink", "keycloak", "lakehouse-delta-aws", "nessie"})
"""Bundles that only a long test or a benchmark needs: fetched by it, and not with all others."""
