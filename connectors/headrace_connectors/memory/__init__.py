"""Memory versions of the ports: shipped, and used by unit tests and properties."""

from headrace_connectors.memory.lakehouse import MemoryLakehouse as MemoryLakehouse
from headrace_connectors.memory.lakehouse import MemoryTable as MemoryTable
