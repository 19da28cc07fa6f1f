# Headrace in one image: Java and Python, the wheel, Spark and the jars of Iceberg and Delta. Build and try it:
#   docker build -t headrace:dev .
#   docker run --rm -p 8083:8083 -e CONNECT_BOOTSTRAP_SERVERS=kafka:9092 -e CONNECT_GROUP_ID=headrace \
#     -e CONNECT_CONFIG_STORAGE_TOPIC=headrace-configs -e CONNECT_STATUS_STORAGE_TOPIC=headrace-status headrace:dev
# It runs with a read-only root file system: what it writes goes to /tmp (scratch) and /var/lib/headrace (the warehouse).

# --build-arg VARIANT=aws adds the jars for S3 and Glue (headrace_dev/versions.py lists the variants).
ARG VARIANT=core

# A release is built from a base by its content, BASE=python:3.11.<patch>-slim-bookworm@sha256:..., so that a second build is
# the same (docs/security.md). Without that, the newest patches of Python and Debian are in it.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS base
# libnss-wrapper gives a name to a uid without an entry in /etc/passwd (docs/decisions/delivery.md). Debian serves only
# its newest version of a package, so a pinned one (DL3008) would soon break the build.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends libnss-wrapper \
 && rm -rf /var/lib/apt/lists/*

# A Java runtime with the modules that Spark, Hadoop, Iceberg, Delta and their libraries use, a third of the complete one
# (docs/decisions/delivery.md). The Java packages link manual pages, whose folder the slim image lacks.
FROM base AS java
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jdk-headless \
 && rm -rf /var/lib/apt/lists/* \
 && jlink --output /opt/java --strip-java-debug-attributes --no-man-pages --no-header-files --compress=2 --add-modules \
java.base,java.compiler,java.desktop,java.instrument,java.logging,java.management,java.management.rmi,java.naming,\
java.net.http,java.prefs,java.rmi,java.scripting,java.security.jgss,java.security.sasl,java.sql,java.sql.rowset,\
java.transaction.xa,java.xml,java.xml.crypto,jdk.attach,jdk.charsets,jdk.crypto.ec,jdk.httpserver,jdk.incubator.vector,jdk.jfr,\
jdk.localedata,jdk.management,jdk.management.agent,jdk.naming.dns,jdk.net,jdk.nio.mapmode,jdk.sctp,jdk.security.auth,\
jdk.security.jgss,jdk.unsupported,jdk.xml.dom,jdk.zipfs \
 && /opt/java/bin/java -Xshare:dump

# tests/packaging/test_image_build.py executes this stage without a container engine.
FROM java AS build
ENV PIP_NO_CACHE_DIR=1
WORKDIR /src
# Packages first: they change less often than the code.
COPY requirements/ requirements/
RUN python -m venv --without-pip /opt/venv \
 && pip --python /opt/venv/bin/python install --require-hashes -r requirements/runtime.txt \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes -r requirements/image.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY service/ service/
COPY connectors/ connectors/
COPY dev/ dev/
# Not before this step: the packages above are the same in all variants, and so is their layer in the build's cache.
ARG VARIANT
# The same resolver, versions and checksums as in development.
RUN PYTHONPATH=dev:service:connectors:/opt/venv/lib/python3.11/site-packages /opt/build/bin/python -m \
    headrace_dev.image_jars "${VARIANT:-core}" /opt/headrace/jars \
 && /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /opt/wheel . \
 && pip --python /opt/venv/bin/python install --no-deps --no-index /opt/wheel/*.whl
# What the image contains, for scanners: they look for files that end in .cdx.json.
RUN PYTHONPATH=dev:service:connectors:/opt/venv/lib/python3.11/site-packages /opt/build/bin/python -m headrace_dev.sbom \
    /opt/venv/lib/python3.11/site-packages /opt/headrace/jars /opt/java > /opt/headrace.cdx.json
# An archive of Spark's classes, valid for the paths of the last stage: a worker starts with a third less CPU time. It is
# a step of its own because it takes a minute, for which the short form of the test does not wait.
# hadolint ignore=DL3059
RUN HEADRACE_JARS=/opt/headrace/jars JAVA_HOME=/opt/java /opt/venv/bin/python -m headrace_connectors.lakehouse.class_archive

FROM base
LABEL org.opencontainers.image.title="Headrace" \
      org.opencontainers.image.description="A Kafka Connect-compatible sink that keeps lakehouse tables equal to their source tables" \
      org.opencontainers.image.licenses="Apache-2.0"
# Any uid may run this (OpenShift assigns one, with the group root), so that group may write what the user may write.
RUN groupadd --gid 10001 headrace \
 && useradd --uid 10001 --gid headrace --no-create-home --home-dir /var/lib/headrace --shell /usr/sbin/nologin headrace \
 && install -d -o headrace -g root -m 0775 /var/lib/headrace \
 && install -d /etc/headrace \
 && printf '# The rest comes from CONNECT_* variables, or from a file mounted here.\nwarehouse=/var/lib/headrace/warehouse\n' \
    > /etc/headrace/worker.properties
COPY --from=java /opt/java /opt/java
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/headrace/jars /opt/headrace/jars
COPY --from=build /opt/headrace.cdx.json /usr/share/doc/headrace/headrace.cdx.json
ENV PATH=/opt/venv/bin:/opt/java/bin:$PATH \
    JAVA_HOME=/opt/java \
    HOME=/var/lib/headrace \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HEADRACE_JARS=/opt/headrace/jars \
    SPARK_LOCAL_DIRS=/tmp
USER 10001:10001
WORKDIR /var/lib/headrace
EXPOSE 8083
# A worker of its own says so here; Kubernetes uses the chart's probes instead.
HEALTHCHECK --interval=30s --timeout=12s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8083/health/ready', timeout=11)"]
ENTRYPOINT ["headrace"]
CMD ["connect-distributed", "/etc/headrace/worker.properties"]
