"""Errors of Spark are translated to errors by their remedy."""

from __future__ import annotations

import pytest

from headrace.core.model.errors import EngineFailed, EngineOutOfMemory, Fatal, HeadraceError, Retriable
from headrace_connectors.lakehouse.direct.direct_table import _damage_of
from headrace_connectors.lakehouse.failures import Conflict, NotThere, translate, translate_errors
from headrace_connectors.lakehouse.iceberg_table import IcebergName

TRACE = (
    "An error occurred while calling o65.sql.\n: org.apache.spark.SparkException: Job aborted: secret-42\nCaused by: "
)


class AnalysisError(Exception):
    """An error as PySpark raises it, with a condition and a message that quotes the statement."""

    def getCondition(self) -> str:
        return "UNRESOLVED_COLUMN"


@pytest.mark.parametrize(
    ("cause", "kind", "words"),
    [
        ("java.io.IOException: No space left on device", Retriable, "no space left.*IOException"),
        ("java.io.FileNotFoundException: /w/x (Permission denied)", Retriable, "cannot be written"),
        ("org.apache.iceberg.exceptions.CommitFailedException: Version 3 exists", Conflict, "another writer"),
        ("org.apache.iceberg.exceptions.ValidationException: Found conflicting files", Conflict, "another writer"),
        ("java.lang.IllegalArgumentException: Snapshot 51 is not an ancestor of 52", Conflict, "another writer"),
        ("org.apache.iceberg.exceptions.CommitStateUnknownException: x", Conflict, "is unknown"),
        ("io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND] x", Conflict, "another writer"),
        ("io.delta.exceptions.MetadataChangedException: [DELTA_METADATA_CHANGED] x", Conflict, "another writer"),
        ("[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION] x", Fatal, "other files"),
        ("[DELTA_MISSING_DELTA_TABLE] x", NotThere, "does not exist"),
        (
            "org.apache.spark.SparkRuntimeException: [MERGE_CARDINALITY_VIOLATION] x",
            Fatal,
            "correct primary.key.fields",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", EngineOutOfMemory, "spark.driver.memory"),
        ("java.net.ConnectException: Connection refused", Retriable, "does not answer"),
        (
            "software.amazon.awssdk.core.exception.SdkClientException: Unable to execute HTTP request: The target "
            "server failed to respond",
            Retriable,
            "does not answer.*SdkClientException",
        ),
        ("org.apache.iceberg.exceptions.ServiceFailureException: Server error", Retriable, "does not answer"),
        (
            "software.amazon.awssdk.services.s3.model.S3Exception: no such key id (Service: S3, Status Code: 403, "
            "Request ID: 1)",
            Retriable,
            "does not accept the credentials.*S3Exception",
        ),
        (
            "software.amazon.awssdk.services.s3.model.S3Exception: ExpiredToken (Service: S3, Status Code: 400)",
            Retriable,
            "does not accept the credentials",
        ),
        ("org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized", Retriable, "renew or correct them"),
        (
            "software.amazon.awssdk.services.s3.model.S3Exception: Slow down (Service: S3, Status Code: 503)",
            Retriable,
            "refused a request",
        ),
        (
            "software.amazon.awssdk.core.exception.SdkClientException: Unable to execute HTTP request: PKIX path "
            "building failed",
            Retriable,
            "not trusted.*jvm.ssl.truststore.location",
        ),
        (
            "javax.net.ssl.SSLPeerUnverifiedException: Certificate for <s3.test> doesn't match any of the subject "
            "alternative names",
            Retriable,
            "of another name",
        ),
        (
            "software.amazon.awssdk.core.exception.SdkClientException: Unable to load credentials from any of the "
            "providers in the chain",
            Retriable,
            "there are no credentials",
        ),
        ("javax.net.ssl.SSLException: Unsupported or unrecognized SSL message", Retriable, "does not speak TLS"),
        ("org.postgresql.util.PSQLException: ERROR: relation exists", Retriable, "catalog's database.*PSQLException"),
        (
            "org.apache.iceberg.jdbc.UncheckedSQLException: Cannot initialize JDBC catalog",
            Retriable,
            "catalog's database",
        ),
        ("java.lang.IllegalStateException: secret-42", Fatal, "IllegalStateException"),
    ],
)
def test_the_innermost_cause_decides_the_error(cause: str, kind: type[HeadraceError], words: str) -> None:
    """The message names the table, and contains no value of a row."""
    error = translate("shop.item", Exception(TRACE + cause))
    assert type(error) is kind
    assert str(error).startswith("shop.item: ")
    assert "secret-42" not in str(error)
    with pytest.raises(kind, match=words):
        raise error


def test_a_statement_that_spark_refuses_is_fatal() -> None:
    """The message contains Spark's error condition, and not the statement."""
    error = translate("shop.item", AnalysisError("== SQL == SELECT 'secret-42'"))
    assert type(error) is Fatal
    assert "UNRESOLVED_COLUMN" in str(error)
    assert "secret-42" not in str(error)


def test_errors_of_headrace_are_unchanged() -> None:
    """They already contain a remedy."""
    with pytest.raises(Conflict, match="mine"), translate_errors("shop.item"):
        raise Conflict("mine")


def test_a_lost_jvm_is_no_damaged_file() -> None:
    """The JVM reads remote files for PyArrow. The error of its connection is not one of the file."""
    with pytest.raises(ConnectionResetError), _damage_of("s3://lake/a.parquet", IcebergName("lake", "shop", "item")):
        raise ConnectionResetError


def test_a_jvm_that_ends_before_its_exception_is_read() -> None:
    """py4j reads the trace of an exception from the JVM. The cause is lost then, and the batch is repeated."""

    class JavaError(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    with pytest.raises(EngineFailed, match=r"t: Spark's JVM has ended"), translate_errors("t"):
        raise JavaError
