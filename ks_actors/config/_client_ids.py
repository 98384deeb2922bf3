"""Client ids, as brokers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ks_actors.config._config import StreamsConfig


class ClientIds(NamedTuple):
    """The client ids of one process, with the names that Kafka Streams gives them.

    `name` is the config's `client_id` followed by the process id, which the state directory keeps.
    One consumer and one producer serve all workers, so there is one "thread", number 1.
    """

    name: str

    @classmethod
    def of(cls, config: StreamsConfig, process_id: str) -> ClientIds:
        """Return the client ids of a process.

        The process id is part of each id even if the config names the client: a member may take
        over from another member with the same client id only if that member is dead.
        """
        return cls(f"{config.client_id}-{process_id}")

    @property
    def thread(self) -> str:
        """The name of the thread that Kafka Streams would have."""
        return f"{self.name}-StreamThread-1"

    @property
    def consumer(self) -> str:
        """The consumer of input, and the member of the group."""
        return f"{self.thread}-consumer"

    @property
    def restore_consumer(self) -> str:
        """The consumer of changelogs."""
        return f"{self.thread}-restore-consumer"

    @property
    def producer(self) -> str:
        """The producer of output and changelogs."""
        return f"{self.thread}-producer"

    @property
    def global_consumer(self) -> str:
        """The consumer of global tables."""
        return f"{self.name}-global-consumer"

    @property
    def admin(self) -> str:
        """The client for topics, offsets and all other questions."""
        return f"{self.name}-admin"
