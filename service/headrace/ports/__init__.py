"""The ports: everything that Headrace requires of the outside world, and what a connector package implements.

    feed             records of Kafka, offsets, dead letters
    lake             tables, their ledgers, the session that opens them
    source           the source database, for reselect, ``headrace verify`` and ``headrace doctor``
    signals          the channel by which a source connector receives signals
    row_store        the rows of the reselect cache
    schema_registry  the schemas of converters
    stores           what outlives a worker: its logs, its membership, groups of the cluster

A protocol that a connector package implements is declared here. A protocol between two modules of the service is
declared where it is used; so are those that the core itself calls (``RowStore``), which are only named here, since the
core imports nothing above it. Each port has a real version and a memory version (``headrace_dev/memory/``), and one
suite in ``tests/contracts`` that both pass. An implementer may raise ``Retriable`` (call again with the same
arguments) or ``Fatal``; errors of drivers and clients never get through.
"""

from headrace.ports.feed import Agent as Agent
from headrace.ports.feed import Chunk as Chunk
from headrace.ports.feed import DeadLetterQueue as DeadLetterQueue
from headrace.ports.feed import Divide as Divide
from headrace.ports.feed import ErrantRecord as ErrantRecord
from headrace.ports.feed import Feed as Feed
from headrace.ports.feed import FeedListener as FeedListener
from headrace.ports.feed import Feeds as Feeds
from headrace.ports.feed import Messages as Messages
from headrace.ports.feed import OffsetNote as OffsetNote
from headrace.ports.feed import OpenAgent as OpenAgent
from headrace.ports.feed import QueuedRecords as QueuedRecords
from headrace.ports.feed import Record as Record
from headrace.ports.feed import ReplayFeeds as ReplayFeeds
from headrace.ports.feed import TopicPartition as TopicPartition
from headrace.ports.lake import Commit as Commit
from headrace.ports.lake import EngineState as EngineState
from headrace.ports.lake import EngineStatus as EngineStatus
from headrace.ports.lake import Lakehouse as Lakehouse
from headrace.ports.lake import LakeTable as LakeTable
from headrace.ports.lake import Ledger as Ledger
from headrace.ports.lake import MergeCounts as MergeCounts
from headrace.ports.lake import TableOptions as TableOptions
from headrace.ports.lake import TableReader as TableReader
from headrace.ports.lake import TableWriter as TableWriter
from headrace.ports.lake import UpkeepReport as UpkeepReport
from headrace.ports.schema_registry import SchemaRegistry as SchemaRegistry
from headrace.ports.signals import Signal as Signal
from headrace.ports.signals import SignalChannel as SignalChannel
from headrace.ports.source import ClockedSource as ClockedSource
from headrace.ports.source import Connections as Connections
from headrace.ports.source import ExaminedSource as ExaminedSource
from headrace.ports.source import LogPosition as LogPosition
from headrace.ports.source import OpenCredentials as OpenCredentials
from headrace.ports.source import OpenDatabase as OpenDatabase
from headrace.ports.source import OpenRowSource as OpenRowSource
from headrace.ports.source import OpenRowStore as OpenRowStore
from headrace.ports.source import PartwiseSource as PartwiseSource
from headrace.ports.source import ReadPassword as ReadPassword
from headrace.ports.source import ReplicationSlot as ReplicationSlot
from headrace.ports.source import RowSource as RowSource
from headrace.ports.source import RowStore as RowStore
from headrace.ports.source import RowStoreOptions as RowStoreOptions
from headrace.ports.source import SignalledSource as SignalledSource
from headrace.ports.source import SlotSource as SlotSource
from headrace.ports.source import StoreFailed as StoreFailed
from headrace.ports.source import TablePart as TablePart
from headrace.ports.source import TableSource as TableSource
from headrace.ports.stores import CompactedLog as CompactedLog
from headrace.ports.stores import FencedLog as FencedLog
from headrace.ports.stores import GroupOffsets as GroupOffsets
from headrace.ports.stores import LogRecord as LogRecord
from headrace.ports.stores import Stores as Stores
from headrace.ports.stores import TopicOffsets as TopicOffsets
from headrace.ports.stores import WorkerMember as WorkerMember
