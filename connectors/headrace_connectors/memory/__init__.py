"""Memory versions of the ports: shipped, and used by unit tests and properties."""

from headrace_connectors.memory.dead_letter_queue import MemoryDeadLetterQueue as MemoryDeadLetterQueue
from headrace_connectors.memory.feed import MemoryBroker as MemoryBroker
from headrace_connectors.memory.feed import MemoryFeed as MemoryFeed
from headrace_connectors.memory.feed import MemoryFeeds as MemoryFeeds
from headrace_connectors.memory.feed import MemoryRecord as MemoryRecord
from headrace_connectors.memory.lakehouse import MemoryLakehouse as MemoryLakehouse
from headrace_connectors.memory.lakehouse import MemoryTable as MemoryTable
from headrace_connectors.memory.row_source import MemoryRowSource as MemoryRowSource
from headrace_connectors.memory.schema_registry import MemorySchemaRegistry as MemorySchemaRegistry
from headrace_connectors.memory.stores import MemoryStores as MemoryStores
