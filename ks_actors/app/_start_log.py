"""The log records of a start."""

from __future__ import annotations

import hashlib
import logging
import sys
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from ks_actors.app._status import task_counts
from ks_actors.lifecycle import component_log
from ks_actors.system import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.config import ProcessingGuarantee, StreamsConfig
    from ks_actors.log import Log
    from ks_actors.runtime.watch import TaskMetadata
    from ks_actors.topology import Topology

_FIRST_S: Final = 10.0
_LONG_S: Final = 1.0
_log = component_log(__name__)


@final
class StartReport:
    """Report once that the app runs, and decide which stalls of the event loop are worth a warning.

    Imports, connections and the opening of databases are part of each start, and no fault. So
    before the app runs a stall outside the user's code gets no warning, and in its first 10 s only
    a stall of a second or more.
    """

    def __init__(self, application_id: str, guarantee: ProcessingGuarantee) -> None:
        self._name = f"{application_id} is running with {guarantee.value}"
        self.since: float | None = None
        """The time (s) since when the app runs, by the monotonic clock; None before."""
        self.tell: Callable[[str], None] | None = None

    def be_told(self) -> None:
        """Request the line on stderr, unless a log has it."""
        if self.tell is None:
            self.tell = _tell_unlogged

    def note_running(self, tasks: tuple[TaskMetadata, ...], workers: int) -> None:
        """Note that the app runs, and print the line if it was requested."""
        self.since = monotonic()
        if self.tell is not None:
            self.tell(f"{self._name}: {task_counts(tasks, workers)}")

    def least_stall(self) -> float:
        """Return the length (s) from which a stall is worth a warning now."""
        if self.since is None:
            return inf
        return _LONG_S if monotonic() - self.since < _FIRST_S else 0.0


def _tell_unlogged(text: str) -> None:
    """Print a line on stderr, if a change of state would not be logged; ignore errors of stderr."""
    if not _log.logger.hasHandlers():
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"{text}\n")


def topology_hash(topology: Topology) -> str:
    """Return 12 digits that differ for topologies with other nodes, topics or stores.

    The digits are the same in every process, and do not depend on the code of functions.
    """
    return hashlib.sha256(topology.describe().to_json().encode()).hexdigest()[:12]


def log_start(topology: Topology, config: StreamsConfig, log: Log) -> None:
    """Log versions, the log, the topology, and the given settings, without secrets."""
    if not _log.isEnabledFor(logging.INFO):
        return
    _log.info(
        "application %s starts: ks-actors %s, topology %s, at %r",
        config.application_id,
        VERSION,
        topology_hash(topology),
        log,
    )
    _log.info("settings: %r", config)
    if config.ignored:
        _log.info("ignored settings: %s", ", ".join(config.ignored))
