"""The metadata of a task's database: its stores, and the facts of each."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from ks_actors._errors import TaskCorrupted
from ks_actors.state.core import after

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.state.core import Engine, EngineRow, StoreForTasks

FORMAT: Final = 1
META: Final = b"\0"
STORES: Final = META + b"stores"
OFFSET: Final = META + b"offset:"
FACTS: Final = META + b"facts:"
LAST_ID: Final = 254
MARK: Final = ":with-headers"
"""The suffix of a store's name for its new rows during an upgrade, beside the old ones.

A store's own name has no colon.
"""

_offset: Final = struct.Struct(">q")


class StoreFacts(msgspec.Struct, frozen=True):
    """The properties of a store that must not change while its data is used.

    An empty `changelog` means that it has none, or that an earlier layout did not record it.
    """

    id: int
    kind: str
    segment_ms: int = 0
    duplicates: bool = False
    changelog: str = ""


class Manifest(msgspec.Struct):
    """The stores with data in a database, including stores no longer in the topology."""

    stores: dict[str, StoreFacts] = {}
    format: int = FORMAT

    @classmethod
    def read(cls, engine: Engine, task: str) -> Manifest:
        """Return the manifest, an empty one for a new database; raises TaskCorrupted."""
        data = engine.get(STORES)
        if data is None:
            return cls()
        try:
            manifest = _decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise TaskCorrupted(
                f"task {task}: the list of stores cannot be read: {error}; the task is deleted and "
                "restored"
            ) from error
        if manifest.format != FORMAT:
            raise TaskCorrupted(
                f"task {task}: state of format {manifest.format}, expected {FORMAT}; the task is "
                "deleted and restored"
            )
        return manifest

    def misfit(self, name: str, wanted: StoreFacts) -> str | None:
        """Return the reason why a known store's data does not fit these facts, or None.

        The id does not count.
        """
        known = self.stores[name]
        if (known.kind, known.segment_ms, known.duplicates) != (
            wanted.kind,
            wanted.segment_ms,
            wanted.duplicates,
        ):
            return (
                f"it was {known.kind} with segments of {known.segment_ms} ms, duplicates "
                f"{known.duplicates}, and is {wanted.kind} with segments of {wanted.segment_ms} "
                f"ms, duplicates {wanted.duplicates} now"
            )
        if known.changelog and wanted.changelog and known.changelog != wanted.changelog:
            return (
                f"it was filled from topic {known.changelog}, and its changelog is "
                f"{wanted.changelog} now"
            )
        return None

    def admit(self, name: str, wanted: StoreFacts, task: str) -> int:
        """Record a store with these facts, and return its id, a new one for a new store.

        Raises TaskCorrupted when no id is left.
        """
        known = self.stores.get(name)
        if known is None:
            # Stores that left the topology keep their ids: their rows are still there.
            used = {facts.id for facts in self.stores.values()}
            free = next((number for number in range(1, LAST_ID + 1) if number not in used), None)
            if free is None:
                raise TaskCorrupted(
                    f"task {task}: one state directory has room for {LAST_ID} stores; the task is "
                    "deleted and restored"
                )
            number = free
        else:
            number = known.id
        self.stores[name] = msgspec.structs.replace(wanted, id=number)
        return number

    def row(self) -> EngineRow:
        """Return the manifest's row."""
        return (STORES, msgspec.json.encode(self))


def offset_row(store: str, offset: int) -> EngineRow:
    """Return the row of a changelog's next offset."""
    return (OFFSET + store.encode(), _offset.pack(offset))


def read_offset(engine: Engine, store: str) -> int | None:
    """Return the next offset of a store's changelog, or None."""
    data = engine.get(OFFSET + store.encode())
    return None if data is None else unpack_offset(data)


def unpack_offset(data: bytes) -> int:
    """Return the offset in a row."""
    return int(_offset.unpack(data)[0])


def facts_row(store: str, facts: bytes) -> EngineRow:
    """Return the row of a store's facts."""
    return (FACTS + store.encode(), facts)


def read_facts(engine: Engine, store: str) -> bytes | None:
    """Return a store's facts, or None."""
    return engine.get(FACTS + store.encode())


def recall(
    engine: Engine, store: StoreForTasks, checkpoint: int | None, give_up: Callable[[str], None]
) -> int | None:
    """Load a store's facts from the engine; return the next offset of its changelog.

    Return None without a changelog, or if the store has to be restored. Rows without an offset take
    the `checkpoint` offset of an earlier layout. Without that offset too, the rows do not fit the
    changelog: report the reason to `give_up` and delete the rows, which the changelog has too.
    """
    offset = None
    if store.logged:
        offset = read_offset(engine, store.name)
        if offset is None:
            rows = engine.scan(store.prefix, after(store.prefix))
            has_rows = next(rows, None) is not None
            rows.close()
            # An offset without rows belongs to a discarded store, before its first new write.
            offset = checkpoint if has_rows else None
            if offset is None:
                if has_rows:
                    give_up(
                        "it has no changelog offset: it was written without a changelog, it was "
                        "not in the topology for a time, or its first write was interrupted by a "
                        "crash"
                    )
                engine.write((), [(store.prefix, after(store.prefix))])
                return None
            engine.write([offset_row(store.name, offset)])
    facts = read_facts(engine, store.name)
    if facts is not None:
        store.recall(facts)
    return offset


# Made at import: two threads must not build msgspec's type information at once, and tasks are
# opened concurrently.
_decoder: Final = msgspec.json.Decoder(Manifest)
