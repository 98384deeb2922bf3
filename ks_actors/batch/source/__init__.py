"""Topics and stores as DataFrames; imports pyspark."""

from ks_actors.batch.source._data_source import KsActorsSource

__all__ = [
    "KsActorsSource",
]
