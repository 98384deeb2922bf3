"""The log records of a start."""

from __future__ import annotations

import hashlib
import logging
from importlib.metadata import version
from typing import TYPE_CHECKING

from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log
    from ks_actors.topology import Topology

_log = component_log(__name__)


def topology_hash(topology: Topology) -> str:
    """Return 12 digits that differ for topologies with other nodes, topics or stores.

    They are the same in every process, and for the same topology in any version of its functions.
    """
    return hashlib.sha256(topology.describe().to_json().encode()).hexdigest()[:12]


def log_start(topology: Topology, config: StreamsConfig, log: Log) -> None:
    """Log versions, the log, the topology, and the given settings, without secrets."""
    if not _log.isEnabledFor(logging.INFO):
        return
    _log.info(
        "application %s starts: ks-actors %s, topology %s, at %r",
        config.application_id,
        version("ks-actors"),
        topology_hash(topology),
        log,
    )
    _log.info("settings: %r", config)
    if config.ignored:
        _log.info("ignored settings: %s", ", ".join(config.ignored))
