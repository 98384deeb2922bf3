"""What a task's database says about itself: its stores, and what is remembered of each."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from ks_actors._errors import TaskCorrupted
from ks_actors.state.core import after

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.state._kinds import AnyStore
    from ks_actors.state.disk._rocksdb import Engine, Row

FORMAT: Final = 1
META: Final = b"\0"
STORES: Final = META + b"stores"
OFFSET: Final = META + b"offset:"
FACTS: Final = META + b"facts:"
LAST_ID: Final = 254
_offset: Final = struct.Struct(">q")


class StoreFacts(msgspec.Struct, frozen=True):
    """What must not change about a store as long as its data is used; no `changelog`: it has none, or an earlier layout did not tell."""

    id: int
    kind: str
    segment_ms: int = 0
    duplicates: bool = False
    changelog: str = ""


class Manifest(msgspec.Struct):
    """The stores that a database has data of; those that the topology has no more are kept."""

    stores: dict[str, StoreFacts] = {}
    format: int = FORMAT

    @classmethod
    def read(cls, engine: Engine, task: str) -> Manifest:
        """Return the manifest, an empty one of a new database; raises TaskCorrupted."""
        data = engine.get(STORES)
        if data is None:
            return cls()
        try:
            manifest = _decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise TaskCorrupted(f"task {task}: the list of stores cannot be read: {error}; it is to be wiped and restored") from error
        if manifest.format != FORMAT:
            raise TaskCorrupted(f"task {task}: state of format {manifest.format}, expected {FORMAT}; it is to be wiped and restored")
        return manifest

    def misfit(self, name: str, wanted: StoreFacts) -> str | None:
        """Say why the data of a store that is known cannot be used by one of these facts, whose id does not count; None: it can."""
        known = self.stores[name]
        if (known.kind, known.segment_ms, known.duplicates) != (wanted.kind, wanted.segment_ms, wanted.duplicates):
            return (
                f"it was {known.kind} with segments of {known.segment_ms} ms, duplicates {known.duplicates}, "
                f"and is {wanted.kind} with segments of {wanted.segment_ms} ms, duplicates {wanted.duplicates} now"
            )
        if known.changelog and wanted.changelog and known.changelog != wanted.changelog:
            return f"it was filled from topic {known.changelog}, and its changelog is {wanted.changelog} now"
        return None

    def admit(self, name: str, wanted: StoreFacts, task: str) -> int:
        """Note a store of these facts, and return its id, a new one of a new store; raises TaskCorrupted when there is none left."""
        changelog = wanted.changelog
        known = self.stores.get(name)
        if known is None:
            used = {facts.id for facts in self.stores.values()}
            free = next((number for number in range(1, LAST_ID + 1) if number not in used), None)
            if free is None:
                raise TaskCorrupted(f"task {task}: no more than {LAST_ID} stores fit into one state directory; it is to be wiped and restored")
            number = free
        else:
            number, changelog = known.id, changelog or known.changelog
        self.stores[name] = StoreFacts(number, wanted.kind, wanted.segment_ms, wanted.duplicates, changelog)
        return number

    def row(self) -> Row:
        """Return the manifest as it is written."""
        return (STORES, msgspec.json.encode(self))


def offset_row(store: str, offset: int) -> Row:
    """Return the next offset of a store's changelog as it is written."""
    return (OFFSET + store.encode(), _offset.pack(offset))


def read_offset(engine: Engine, store: str) -> int | None:
    """Return the next offset of a store's changelog, or None."""
    data = engine.get(OFFSET + store.encode())
    return None if data is None else unpack_offset(data)


def unpack_offset(data: bytes) -> int:
    """Return an offset as it was written."""
    return int(_offset.unpack(data)[0])


def facts_row(store: str, facts: bytes) -> Row:
    """Return what a store wants to be remembered as it is written."""
    return (FACTS + store.encode(), facts)


def read_facts(engine: Engine, store: str) -> bytes | None:
    """Return what a store wanted to be remembered, or None."""
    return engine.get(FACTS + store.encode())


def recall(engine: Engine, store: AnyStore, checkpoint: int | None, give_up: Callable[[str], None]) -> int | None:
    """Have a store take up what the engine remembers of it; return the next offset of its changelog, None when it has none, or has to be restored.

    Without an offset of its own it takes over the one that a file has, of an earlier layout. With neither, what there is is told to `give_up`, and
    deleted: it is of a write that has never come to its end, and comes again.
    """
    offset = None
    if store.logged:
        offset = read_offset(engine, store.name)
        if offset is None and checkpoint is not None:
            offset = checkpoint
            engine.write([offset_row(store.name, offset)])
        if offset is None:
            rows = engine.scan(store.prefix, after(store.prefix))
            if next(rows, None) is not None:
                give_up("nothing tells how far of the changelog it is: it was written without one, or a crash has interrupted its first write")
            rows.close()
            engine.write((), [(store.prefix, after(store.prefix))])
            return None
    facts = read_facts(engine, store.name)
    if facts is not None:
        store.recall(facts)
    return offset


# Made here: what msgspec learns of a type when it first meets it must not be learned by two threads at once, and tasks are opened side by side.
_decoder: Final = msgspec.json.Decoder(Manifest)
