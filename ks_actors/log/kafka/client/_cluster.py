"""The brokers of a cluster, which the clients of one log share."""

from __future__ import annotations

import threading
from typing import final


@final
class Cluster:
    """The addresses of the listed brokers by id, and the controller, as of the last metadata.

    The last response that any of the clients gets counts, so a client that has asked nothing yet
    does not look for a broker that others know to be gone. Threads may share it: a listing is
    replaced as a whole.
    """

    __slots__ = ("_lock", "brokers", "controller")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.brokers: dict[int, tuple[str, int]] = {}
        self.controller: int | None = None

    def list(self, brokers: dict[int, tuple[str, int]], controller: int) -> None:
        """Replace the listing; a negative or unlisted controller is none."""
        with self._lock:
            self.brokers = brokers
            self.controller = controller if controller in brokers else None

    def add(self, node: int, address: tuple[str, int]) -> None:
        """Add a broker that is newer than the listing."""
        with self._lock:
            if node not in self.brokers:
                self.brokers = {**self.brokers, node: address}
