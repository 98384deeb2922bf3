"""Records as Arrow tables and Parquet files; imports pyarrow."""

from ks_actors.batch.tables._columns import TopicColumns, latest
from ks_actors.batch.tables._export import export
from ks_actors.batch.tables._parquet import write_parquet
from ks_actors.batch.tables._records import records_of, table_of

__all__ = [
    "TopicColumns",
    "export",
    "latest",
    "records_of",
    "table_of",
    "write_parquet",
]
