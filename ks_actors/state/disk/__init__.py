"""RocksDB and files."""
