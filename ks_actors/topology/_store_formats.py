"""The format of the DSL's stores, with or without headers (`dsl_store_format`, KIP-1285)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import msgspec

from ks_actors.topology._stores import WITH_HEADERS, StorePlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.topology._store_engine import StoreType
    from ks_actors.topology._stores import StoreSpec
    from ks_actors.topology._topology import Topology


def with_headers(topology: Topology, default_type: StoreType) -> Topology:
    """Return a topology whose stores of the DSL keep headers, as in Kafka Streams.

    These are the stores of tables and aggregates on disk. Versioned stores, stores in memory and
    stores of joins stay unchanged. `default_type` is the type of stores that name none.
    """

    def formatted(specs: Mapping[str, StoreSpec]) -> dict[str, StoreSpec]:
        return {name: spec_with_headers(spec, default_type) for name, spec in specs.items()}

    found = copy.copy(topology)
    found._stores = formatted(topology.stores)
    found._global_stores = formatted(topology.global_stores)
    return found


def without_engines(topology: Topology, default_type: StoreType) -> Topology:
    """Return a topology with RocksDB in place of the user's own engines."""

    def placed(specs: Mapping[str, StoreSpec]) -> dict[str, StoreSpec]:
        found = {}
        for name, spec in specs.items():
            known = msgspec.structs.replace(spec, type=spec.type or default_type)
            if known.place is StorePlace.ENGINE:
                known = msgspec.structs.replace(known, type="rocksdb")
            found[name] = known
        return found

    found = copy.copy(topology)
    found._stores = placed(topology.stores)
    found._global_stores = placed(topology.global_stores)
    return found


def spec_with_headers(spec: StoreSpec, default_type: StoreType) -> StoreSpec:
    """Return a store's spec as `with_headers` changes it."""
    if (
        not spec.of_dsl
        or spec.kind not in WITH_HEADERS
        or (spec.type or default_type) == "in_memory"
    ):
        return spec
    return msgspec.structs.replace(spec, kind=WITH_HEADERS[spec.kind])
