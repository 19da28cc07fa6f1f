"""Errors of damaged and missing files: which they are, and the name of the file."""

from __future__ import annotations

import pytest

from headrace.core.model.errors import DamagedFile, Fatal, Retriable
from headrace_connectors.lakehouse.failures import DAMAGED, MISSING, damage, naming_the_file, translate, without_values

JOB = "An error occurred while calling o1.sql.\n: org.apache.spark.SparkException: Job aborted due to stage failure\n"
HADOOP = "org.apache.hadoop.fs"
ICEBERG = "org.apache.iceberg.exceptions"


def trace(*causes: str) -> str:
    return JOB + "".join(f"Caused by: {cause}\n\tat a.B.c(B.java:1)\n" for cause in causes)


@pytest.mark.parametrize(
    ("causes", "file", "fault"),
    [
        (
            [
                f"{ICEBERG}.RuntimeIOException: Failed to read file: /w/shop/item/metadata/v4.metadata.json",
                "org.apache.iceberg.shaded.com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end-of-input",
            ],
            "/w/shop/item/metadata/v4.metadata.json",
            DAMAGED,
        ),
        (
            [f"{HADOOP}.ChecksumException: Checksum error: file:/w/a b/item/data/x.parquet at 512 exp: 1 got: 2"],
            "file:/w/a b/item/data/x.parquet",
            DAMAGED,
        ),
        (
            [f"{ICEBERG}.ValidationException: Metadata file for version 4 is missing under /w/shop/item/metadata"],
            "/w/shop/item/metadata/v4.metadata.json",
            MISSING,
        ),
        ([f"{ICEBERG}.NotFoundException: Location does not exist: s3://b/w/x.parquet"], "s3://b/w/x.parquet", MISSING),
        (
            ["java.io.FileNotFoundException: No such file or directory: s3a://b/w/_delta_log/1.json"],
            "s3a://b/w/_delta_log/1.json",
            MISSING,
        ),
        (
            [
                "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
                "file:///w/item/_delta_log/3.json.  SQLSTATE: KD001",
                'com.fasterxml.jackson.core.io.JsonEOFException: [Source: (byte[])"{"stats":"secret-42"',
            ],
            "file:///w/item/_delta_log/3.json",
            DAMAGED,
        ),
        (["org.apache.spark.sql.delta.X: [DELTA_VERSIONS_NOT_CONTIGUOUS] Versions"], None, "is missing in the middle"),
    ],
)
def test_a_file_is_named_and_no_value(causes: list[str], file: str | None, fault: str) -> None:
    """The file is that of the innermost cause which names one."""
    error = translate("shop.item", Exception(trace(*causes)))
    assert type(error) is DamagedFile
    assert error.file == file
    assert fault in str(error)
    assert "runbook" in str(error)
    assert "secret-42" not in str(error)


@pytest.mark.parametrize(
    "cause",
    [
        "software.amazon.awssdk.core.exception.SdkClientException: Failed to open file: s3://b/x: Connection reset",
        "java.io.FileNotFoundException: /w/x.parquet (Permission denied)",
        "java.io.IOException: Failed to open file: /w/x.parquet: No space left on device",
        f"{ICEBERG}.RESTException: com.fasterxml.jackson.core.JsonParseException: Unexpected character",
        "java.io.IOException: Stale file handle",
        "java.io.EOFException: Failed to open file: /tmp/headrace-1/headrace_stage_1.parquet: java.io.IOException",
    ],
)
def test_an_outage_is_no_damage(cause: str) -> None:
    """The network, the rights and the space of the storage are retried without an end."""
    assert type(translate("shop.item", Exception(trace(cause)))) is Retriable


def test_values_of_partitions_are_not_shown() -> None:
    """Folders of partitions contain values of cells; those of the ledger contain days, which help to find the file."""
    assert without_values("/env=prod/item/data/name=secret/x.parquet") == "/env=…/item/data/name=…/x.parquet"
    ledger = "/w/item__headrace_tombstones/data/recorded_at_day=2026-11-24/x.parquet"
    assert without_values(ledger) == ledger


def test_the_vector_of_a_delta_table_is_not_taken_for_its_data_file() -> None:
    """Spark names the data file for both."""
    read = "org.apache.spark.SparkException: Encountered error while reading file /w/part-1.parquet.  SQLSTATE: KD001"
    reader = "\tat org.apache.spark.sql.delta.storage.dv.HadoopFileSystemDVStore.read(DVStore.scala:1)"
    found = damage(f"{trace(read, 'java.io.EOFException')}{reader}\n")
    assert found is not None
    assert found.file is None


def test_a_file_that_no_error_names_is_looked_for() -> None:
    """What was found is named; an error of the search does not hide the damage."""
    with (
        pytest.raises(DamagedFile, match=r"/w/name=…/x\.parquet") as caught,
        naming_the_file("item", lambda: "/w/name=1/x.parquet"),
    ):
        raise DamagedFile("unknown")
    assert caught.value.file == "/w/name=…/x.parquet"

    def fail() -> str:
        raise Retriable("the storage is away")

    with pytest.raises(DamagedFile, match="unknown"), naming_the_file("item", fail):
        raise DamagedFile("unknown")
    with pytest.raises(DamagedFile, match="known"), naming_the_file("item", fail):
        raise DamagedFile("known", "/w/x")


def test_an_unknown_error_names_the_line_of_code() -> None:
    """Spark logs no error of its driver, so that the message is all that an operator has."""
    error = translate("shop.item", Exception(trace("java.lang.IllegalStateException: secret-42")))
    assert type(error) is Fatal
    assert "IllegalStateException at B.c(B.java:1)" in str(error)
    assert "secret-42" not in str(error)
