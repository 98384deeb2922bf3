"""The brokers of a cluster, which the clients of one log share."""

from __future__ import annotations

import threading
from typing import final


@final
class Cluster:
    """The addresses of the listed brokers by id, and the controller, as of the last metadata.

    `id` comes from the first response with an id; before, it is empty. An address may later lead to
    a broker of another cluster, whose answers are then ignored.

    The last response to any of the clients counts. So an idle client does not look for a broker if
    other clients know that it has left. Threads may share it: a listing is replaced as a whole.
    """

    __slots__ = ("_lock", "brokers", "controller", "id")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.id: str = ""
        self.brokers: dict[int, tuple[str, int]] = {}
        self.controller: int | None = None

    def list(self, cluster: str, brokers: dict[int, tuple[str, int]], controller: int) -> bool:
        """Replace the listing, but return False and keep the old if `cluster` is another cluster.

        A negative or unlisted controller means that there is no controller.
        """
        with self._lock:
            if self.id and cluster and cluster != self.id:
                return False
            self.id = self.id or cluster
            self.brokers = brokers
            self.controller = controller if controller in brokers else None
            return True

    def add(self, node: int, address: tuple[str, int]) -> None:
        """Add a broker that is newer than the listing."""
        with self._lock:
            if node not in self.brokers:
                self.brokers = {**self.brokers, node: address}
