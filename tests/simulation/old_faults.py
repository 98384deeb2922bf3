"""Faults that the client had, or might have, each to be put in for a run: the layer of each has to find it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ks_actors.assignment import GroupAssignor
from ks_actors.log.kafka.admin import Admin
from ks_actors.log.kafka.client import KafkaClient
from ks_actors.log.kafka.client._leader_epochs import UNKNOWN_EPOCH
from ks_actors.log.kafka.client._young_topics import YoungTopics
from ks_actors.log.kafka.consumer._fetch_session import FetchSession
from ks_actors.log.kafka.consumer._partition_reader import PartitionReader
from ks_actors.log.kafka.transactions._transaction_coordinator import TransactionCoordinator
from ks_actors.log.kafka.transactions._transactional_producer import KafkaTransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest

    from ks_actors.log import IsolationLevel
    from ks_actors.records import TopicPartition


class OldFault(NamedTuple):
    """A fault: its description, the function that puts it in, and the layer that is to find it."""

    what: str
    put_in: Callable[[pytest.MonkeyPatch], None]
    layer: str = "kafka"


def leave_chunks_packed(patch: pytest.MonkeyPatch) -> None:
    """Have a chunk that arrives during a pause not be decompressed by its end."""
    to_unpack = vars(PartitionReader)["to_unpack"].fget

    def resume(source: PartitionReader) -> None:
        source.paused = False
        if source.ready or not source.chunks:
            source._settle(source)

    patch.setattr(PartitionReader, "to_unpack", property(lambda source: None if source.paused else to_unpack(source)))
    patch.setattr(PartitionReader, "resume", resume)


def keep_sessions(patch: pytest.MonkeyPatch) -> None:
    """Have a fetch session go on behind a request of which nobody knows whether the broker has seen it."""
    patch.setattr(FetchSession, "lose", lambda _: None)


def send_no_epochs(patch: pytest.MonkeyPatch) -> None:
    """Have fetches not tell which record they follow: a log that has lost it and has grown again looks like the old one (KIP-320)."""
    request = FetchSession.request

    def without_epochs(session: FetchSession, *arguments: Any, **options: Any) -> Any:
        session._asked = [(topic, [(number, offset, UNKNOWN_EPOCH) for number, offset, _ in asked]) for topic, asked in session._asked]
        return request(session, *arguments, **options)

    patch.setattr(FetchSession, "request", without_epochs)


def believe_in_rivals(patch: pytest.MonkeyPatch) -> None:
    """Have a producer whose transaction has timed out take that for a newer producer of its id."""

    async def identity_after(_: KafkaTransactionalProducer, refused: Any) -> tuple[None, str]:
        return None, str(refused)

    patch.setattr(KafkaTransactionalProducer, "_identity_after", identity_after)


def return_before_the_end(patch: pytest.MonkeyPatch) -> None:
    """Have a commit return as soon as it is decided, when its readers do not see all of it yet."""

    async def until_complete(_: TransactionCoordinator) -> bool:
        return True

    patch.setattr(TransactionCoordinator, "until_complete", until_complete)


def tell_no_other_brokers(patch: pytest.MonkeyPatch) -> None:
    """Have a call that makes or deletes topics return when one broker knows of it."""

    async def spread(*_: Any) -> None:
        pass

    patch.setattr(YoungTopics, "spread", spread)


def look_up_no_leaders(patch: pytest.MonkeyPatch) -> None:
    """Have a client that is content with its leaders never look whether there are others: one that is cut off goes on answering."""

    async def keep_up(_: KafkaClient) -> None:
        pass

    patch.setattr(KafkaClient, "_keep_up", keep_up)


def wait_for_dead_connections(patch: pytest.MonkeyPatch) -> None:
    """Have a fetcher wait for an answer on a dead connection, though the other one to the same broker is whole."""
    patch.setattr(KafkaClient, "late", lambda *_: False)


def remember_ends(patch: pytest.MonkeyPatch) -> None:
    """Have a client look up the end of a log once: a store that is restored a second time is not restored up to its end."""
    look_up = Admin.end_offsets

    async def remembered(admin: Admin, partitions: Iterable[TopicPartition], isolation: IsolationLevel) -> dict[TopicPartition, int]:
        known: dict[Any, int] = admin.__dict__.setdefault("known_ends", {})
        names = tuple(partitions)
        new = [name for name in names if (name, isolation) not in known]
        found = await look_up(admin, new, isolation) if new else {}
        known.update({(name, isolation): end for name, end in found.items()})
        return {name: known[name, isolation] for name in names}

    patch.setattr(Admin, "end_offsets", remembered)


def forget_what_members_are_to_give_up(patch: pytest.MonkeyPatch) -> None:
    """Have a static member that ended before it gave tasks up not ask for them when it returns."""
    basis = GroupAssignor.basis
    patch.setattr(GroupAssignor, "basis", lambda assignor, topology, traits, partitions, _=(): basis(assignor, topology, traits, partitions))


CLIENT_FAULTS: dict[str, OldFault] = {
    "chunk": OldFault("a chunk that arrives during a pause is never decompressed", leave_chunks_packed),
    "session": OldFault("a fetch session goes on behind a lost request", keep_sessions),
    "epoch": OldFault("a log that has lost records and has grown again is taken for the old one", send_no_epochs),
    "rival": OldFault("a transaction that timed out is taken for the work of a newer producer", believe_in_rivals),
    "end": OldFault("a commit returns before its readers see it", return_before_the_end),
    "spread": OldFault("a topic is made when one broker knows of it", tell_no_other_brokers),
    "age": OldFault("metadata are never looked up for their age", look_up_no_leaders),
    "dead": OldFault("a dead connection stops what the other one could fetch", wait_for_dead_connections),
    "chunk_of_apps": OldFault("a chunk that arrives during a pause is never decompressed", leave_chunks_packed, "kafka-apps"),
    "orphans": OldFault("nobody gets what a static member was to give up when it ended", forget_what_members_are_to_give_up, "kafka-apps"),
    "ends": OldFault("the end of a log is looked up once", remember_ends, "kafka-apps"),
}
