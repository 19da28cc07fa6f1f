"""The lakehouse: Iceberg and Delta tables, written through one Spark session. Only this package imports pyspark."""

from headrace_connectors.lakehouse.lakehouse import SparkLakehouse as SparkLakehouse
