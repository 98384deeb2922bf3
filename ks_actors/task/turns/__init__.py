"""The records of several partitions in runs, where their order allows it."""

from ks_actors.task.turns._table_turns import TableTurns, find_tables

__all__ = ["TableTurns", "find_tables"]
