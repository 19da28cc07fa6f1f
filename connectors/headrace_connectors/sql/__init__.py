"""Source databases as row sources."""

from headrace_connectors.sql.oracle import OracleRowSource as OracleRowSource
from headrace_connectors.sql.postgres import PostgresRowSource as PostgresRowSource
