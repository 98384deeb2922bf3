"""Generated names of stores and internal topics, which change with the topology (KIP-1111)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._errors import TopologyError
from ks_actors.lifecycle import component_log
from ks_actors.topology._unnamed_resources import Unnamed

if TYPE_CHECKING:
    from collections.abc import Collection

    from ks_actors.topology._topology import Topology

_log = component_log(__name__)
_SETTING = "ensure_explicit_internal_resource_naming"
_RISK = (
    "These names have numbers that change when an operation is added or removed upstream, and "
    "the application would then begin with empty state"
)
_REMEDY = (
    "give names by Materialized, Grouped, Joined, StreamJoined, TableJoined, Repartitioned and "
    "Suppressed, or by the argument 'name'"
)


def find_unnamed(topology: Topology, generated: Collection[str]) -> Unnamed:
    """Return the resources whose names begin with one of the `generated` names."""
    stores = {
        name: spec
        for name, spec in (*topology.stores.items(), *topology.global_stores.items())
        if _is_generated(name, generated)
    }
    return Unnamed(
        tuple(
            f"{name}-changelog"
            for name, spec in stores.items()
            if spec.logging and spec.source_topic is None
        ),
        tuple(stores),
        tuple(topic for topic in topology.internal_topics if _is_generated(topic, generated)),
    )


def _is_generated(name: str, generated: Collection[str]) -> bool:
    return any(name == each or name.startswith(f"{each}-") for each in generated)


def refuse_unnamed(topology: Topology) -> None:
    """Raise TopologyError, with all generated names, when the topology has any."""
    if any(topology.unnamed):
        raise TopologyError(
            f"{_SETTING} is true, and names were generated for {topology.unnamed}. {_RISK}: "
            f"{_REMEDY}"
        )


def warn_of_unnamed(topology: Topology) -> None:
    """Log a warning with all generated names."""
    if any(topology.unnamed):
        _log.warning(
            "names were generated for %s. %s. Before the first deployment, %s; with %s=True this "
            "is an error",
            topology.unnamed,
            _RISK,
            _REMEDY,
            _SETTING,
        )
