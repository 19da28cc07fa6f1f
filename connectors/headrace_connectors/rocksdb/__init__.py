"""RocksDB as the store of the reselect cache's rows, for keys that outgrow memory."""

from headrace_connectors.rocksdb.row_store import RocksRowStore as RocksRowStore
from headrace_connectors.rocksdb.row_store import open_rows as open_rows
