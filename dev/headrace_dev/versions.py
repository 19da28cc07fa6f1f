"""The versions of the external software in the development stack.

A bundle is a folder of files that one JVM puts on its class path, or one archive. Python packages have their versions
in ``pyproject.toml``; those of Iceberg and Delta are in the service, which needs them without this package. After a
change run ``make lock``: ``jars.sha256`` pins every file of every bundle.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace_connectors.lakehouse.spark_settings import LOCAL_FILES, PACKAGES

KAFKA = "4.3.1"
DEBEZIUM = "3.7.0.Final"
APICURIO = "2.6.13.Final"  # the schema registry
LOG4J = "2.25.5"
POSTGRESQL = "15"  # Debian's package, where root may install it
HELM = "3.22.0"  # built from its Go module, where there is Go
KUBERNETES = "1.34"  # what the chart's manifests are checked against

JAVA = 17


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

BUNDLES: dict[str, tuple[Artifact, ...]] = {
    "kafka": (Artifact("org.apache.kafka", "kafka_2.13", KAFKA), *_LOGGING),
    "connect": (Artifact("org.apache.kafka", "connect-runtime", KAFKA), *_LOGGING),
    "connect-jdbc": (_single("io.debezium:debezium-connector-jdbc:3.6.0.Final"),),  # its transforms, for recorders
    "connect-file": (_single(f"org.apache.kafka:connect-file:{KAFKA}"),),  # FileStreamSink, for recorders
    "debezium-postgres": (Artifact("io.debezium", "debezium-connector-postgres", DEBEZIUM, False, "tar.gz", "plugin"),),
    "apicurio": (Artifact("io.apicurio", "apicurio-registry-app", APICURIO, False, "tar.gz", "all"),),
    "lakehouse": tuple(map(_single, (*PACKAGES, LOCAL_FILES))),
    # For the hand-written stream of the benchmark. Maven Central does not have 4.1.4 of the first two.
    "spark-kafka": (
        _single("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"),
        _single("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"),
        _single("org.apache.kafka:kafka-clients:3.9.1"),
        _single("org.apache.commons:commons-pool2:2.12.1"),
    ),
}
