"""Source databases as row sources."""

from headrace_connectors.sql.postgres import PostgresRowSource as PostgresRowSource
