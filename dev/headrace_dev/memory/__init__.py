"""Memory versions of the ports, for tests. Nothing that is shipped imports them."""

from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue as MemoryDeadLetterQueue
from headrace_dev.memory.feed import MemoryBroker as MemoryBroker
from headrace_dev.memory.feed import MemoryFeed as MemoryFeed
from headrace_dev.memory.feed import MemoryFeeds as MemoryFeeds
from headrace_dev.memory.feed import MemoryRecord as MemoryRecord
from headrace_dev.memory.lakehouse import MemoryLakehouse as MemoryLakehouse
from headrace_dev.memory.lakehouse import MemoryTable as MemoryTable
from headrace_dev.memory.row_source import MemoryRowSource as MemoryRowSource
from headrace_dev.memory.schema_registry import MemorySchemaRegistry as MemorySchemaRegistry
from headrace_dev.memory.stores import MemoryStores as MemoryStores
