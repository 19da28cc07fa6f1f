"""The hand-written alternative: Structured Streaming from Kafka, from_json, foreachBatch, MERGE.

A job for one known table: no schema evolution, no unavailable values, no dead letters, no late events after a delete.
It runs in a separate process and reads the whole topic three times, into one table each: with small
triggers to warm up, with triggers of the measured size, and measured. It prints the last cost as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from benchmarks.cpu import cpu_of, wait_until_quiet
from benchmarks.lake import LSN, MEASURED, REHEARSAL, SPARK, STREAM, WARM_UP
from benchmarks.workload import KEY, SCHEMA, TOPIC
from headrace_dev.jars import resolve

_ROW = (
    "struct<id: bigint, name: string, email: string, balance: string, qty: int, active: boolean, score: double, "
    "created: bigint, updated: string, note: string>"
)
_MESSAGE = f"struct<payload: struct<before: {_ROW}, after: {_ROW}, source: struct<lsn: bigint>, op: string>>"
_HEX = "hex(unbase64(r.balance))"
_UNSCALED = f"CAST(conv({_HEX}, 16, 10) AS DECIMAL(20, 0))"
_TWO_TO_BITS = "CAST(pow(2, 4 * length(" + _HEX + ")) AS DECIMAL(20, 0))"
_BALANCE = (
    f"CAST(({_UNSCALED} - CASE WHEN substr({_HEX}, 1, 1) >= '8' THEN {_TWO_TO_BITS} ELSE 0 END) / 100 "
    "AS DECIMAL(12, 2))"
)
_COLUMNS = [*SCHEMA.names, LSN]


def main() -> None:
    """Run the job with the options of the command line."""
    chosen = _arguments()
    spark = _session(chosen.warehouse)
    _consume(spark, chosen, WARM_UP, chosen.max_offsets_per_warm_up_trigger)
    _consume(spark, chosen, REHEARSAL, chosen.max_offsets_per_trigger)
    wait_until_quiet(os.getpid(), chosen.rest)
    begin, cpu = time.monotonic(), cpu_of(os.getpid())
    _consume(spark, chosen, MEASURED, chosen.max_offsets_per_trigger)
    used = cpu_of(os.getpid()).since(cpu)
    seconds = time.monotonic() - begin
    print(json.dumps({"seconds": seconds, "cpu": {name: getattr(used, name) for name in used.__slots__}}), flush=True)
    spark.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--warehouse", required=True, type=Path)
    parser.add_argument("--checkpoints", required=True, type=Path)
    parser.add_argument("--max-offsets-per-trigger", required=True, type=int)
    parser.add_argument("--max-offsets-per-warm-up-trigger", required=True, type=int)
    parser.add_argument("--rest", required=True, type=int, help="seconds to rest after the warm-up, at most")
    return parser.parse_args()


def _session(warehouse: Path) -> Any:
    catalog = "spark.sql.catalog.lake"
    settings = {
        **SPARK,
        "spark.jars": ",".join(map(str, (*resolve("lakehouse"), *resolve("spark-kafka")))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(warehouse),
        f"{catalog}.cache-enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _consume(spark: Any, chosen: argparse.Namespace, table: str, max_offsets: int) -> None:
    """Write all records that the topic contains now to the table."""
    query = (
        _changes(spark, chosen.bootstrap_servers, max_offsets)
        .writeStream.foreachBatch(lambda batch, number: _merge(batch, f"lake.{STREAM}.{table}"))
        .option("checkpointLocation", str(chosen.checkpoints / table))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _changes(spark: Any, bootstrap_servers: str, max_offsets: int) -> DataFrame:
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_offsets)
        .load()
    )
    message = sf.from_json(sf.col("value").cast("string"), _MESSAGE)
    row = "IF(m.payload.op = 'd', m.payload.before, m.payload.after) AS r"
    cells = {"balance": _BALANCE, "created": "CAST(timestamp_micros(r.created) AS TIMESTAMP_NTZ)"}
    cells["updated"] = "CAST(r.updated AS TIMESTAMP)"
    return (
        records.where("value IS NOT NULL")
        .select(message.alias("m"))
        .selectExpr("m.payload.op AS op", f"m.payload.source.lsn AS {LSN}", row)
        .selectExpr("op", LSN, *(f"{cells.get(name, f'r.{name}')} AS {name}" for name in SCHEMA.names))
    )


def _merge(batch: DataFrame, table: str) -> None:
    """Merge the last change of every row."""
    newest = Window.partitionBy(KEY).orderBy(sf.desc(LSN))
    last = batch.withColumn("place", sf.row_number().over(newest)).where("place = 1").drop("place")
    last.createOrReplaceTempView("changes")
    assignments = ", ".join(f"t.{name} = s.{name}" for name in _COLUMNS)
    values = ", ".join(f"s.{name}" for name in _COLUMNS)
    batch.sparkSession.sql(
        f"MERGE INTO {table} AS t USING changes AS s ON t.{KEY} = s.{KEY} "
        "WHEN MATCHED AND s.op = 'd' THEN DELETE "
        f"WHEN MATCHED AND s.{LSN} > t.{LSN} THEN UPDATE SET {assignments} "
        f"WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({', '.join(_COLUMNS)}) VALUES ({values})"
    )


if __name__ == "__main__":
    main()
