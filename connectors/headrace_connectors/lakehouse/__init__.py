"""The lakehouse: Iceberg tables, written through one shared Spark session."""
