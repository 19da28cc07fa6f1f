"""The lakehouse: Iceberg tables, written through one shared Spark session. Only this package imports pyspark."""

from headrace_connectors.lakehouse.session import SparkLakehouse as SparkLakehouse
