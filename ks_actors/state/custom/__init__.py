"""Stores and engines that users define."""

from ks_actors.state.custom._directory import look_around, note_present
from ks_actors.state.custom._engines import SuppliedEngines, by_engine
from ks_actors.state.custom._store import CustomReader, CustomStore, CustomStores, shown

__all__ = [
    "CustomReader",
    "CustomStore",
    "CustomStores",
    "SuppliedEngines",
    "by_engine",
    "look_around",
    "note_present",
    "shown",
]
