"""The opening of a task's stores with their usable state on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ks_actors._errors import StateError
from ks_actors.state._discard import give_up
from ks_actors.state.core import Transactional, after
from ks_actors.state.disk import FACTS, OFFSET, Manifest, StoreFacts, read_offset, recall, upgrade
from ks_actors.state.task_stores._positions import POSITION, SUFFIX
from ks_actors.topology import StoreKind, StorePlace, bare_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from ks_actors.state.core import Engine, EngineRow, StoreForTasks
    from ks_actors.state.custom import CustomStores
    from ks_actors.state.disk import CheckpointFile
    from ks_actors.state.task_stores._positions import Positions
    from ks_actors.topology import StoreSpec


class Place(NamedTuple):
    """The location of a task's stores, and the sources of their offsets and positions.

    `checkpoint` has the offsets from the checkpoint file before the opening, which may remove some.
    `names` are those in the directory.
    """

    task: str
    directory: Path | None
    file: CheckpointFile
    custom: CustomStores
    positions: Positions
    checkpoint: Mapping[tuple[str, int], int]
    names: Collection[str]


class Opened(NamedTuple):
    """The stores by name, their changelogs' next offsets, and the offsets that are on disk."""

    stores: dict[str, StoreForTasks]
    offsets: dict[str, int]
    written: dict[str, int]


def open_stores(
    place: Place,
    specs: Sequence[StoreSpec],
    engine: Engine | None,
    engines: Mapping[str, Engine],
    make: Callable[[StoreSpec, Engine | None], StoreForTasks],
    opened: Opened,
    *,
    topics: Mapping[str, str],
    unfit: Mapping[str, str],
) -> None:
    """Make the stores with their state on disk, in `engine` or in their own `engines`.

    Each store is added to `opened`; after an error, close the stores in `opened`. A store that is
    `unfit`, for the given reason, begins empty; the others keep their state. `topics` are the
    changelogs by store. Blocks. Raises TaskCorrupted when the database cannot be read, and any
    error of custom stores. Raises StateError for an unusable store without changelog, and for a
    store of another kind.
    """
    manifest = None if engine is None else Manifest.read(engine, place.task)
    known = {} if manifest is None else dict(manifest.stores)
    # Check before anything is opened or discarded: a user who undoes the change loses nothing.
    for spec in specs:
        if spec.name in known and spec.name not in unfit:
            _refuse_another_kind(place.task, spec, known[spec.name], topics)
    for spec in specs:
        if spec.kind is StoreKind.CUSTOM:
            opened.stores[spec.name] = place.custom.make(spec)
            offset = place.custom.open(spec.name, place.checkpoint, unfit.get(spec.name))
            if offset is not None:
                opened.offsets[spec.name] = opened.written[spec.name] = offset
        elif (own := engines.get(spec.name)) is not None:
            _open_on_engine(place, spec, own, make, opened, topics, unfit)
        elif engine is None or manifest is None or spec.place is StorePlace.MEMORY:
            opened.stores[spec.name] = make(spec, None)
        else:
            store = opened.stores[spec.name] = make(spec, engine)
            _open_on_disk(place, spec, store, engine, manifest, opened, topics, unfit)
    if engine is not None and manifest is not None:
        here = [spec for spec in specs if spec.place is StorePlace.DATABASE]
        _record(place, engine, manifest, known, here)


def _refuse_another_kind(
    task: str, spec: StoreSpec, known: StoreFacts, topics: Mapping[str, str]
) -> None:
    """Raise StateError for a store whose changelog has rows of another kind."""
    changelog = topics.get(spec.name, spec.name)
    before, now = bare_kind(known.kind), bare_kind(spec.kind.value)
    if before != now and spec.logging and known.changelog == changelog:
        raise StateError(
            f"store {spec.name} of task {task} was a {before.replace('_', '-')} store, and is a "
            f"{now.replace('_', '-')} store now, which cannot read the rows of its changelog "
            f"{changelog}: give it another name, or undo the change; or reset the application to "
            "compute it again"
        )


def _record(
    place: Place,
    engine: Engine,
    manifest: Manifest,
    known: Mapping[str, StoreFacts],
    specs: Sequence[StoreSpec],
) -> None:
    """Write the manifest if it is not as `known`, and delete invalid offsets.

    The `specs` are all stores of the task in this database. Offsets of stores without changelog,
    and of stores that are not among the `specs`, are invalid: if such a store follows its changelog
    again, its rows do not fit that changelog, which may lack deletions.
    """
    logged = {spec.name for spec in specs if spec.logging}
    stale = [
        name
        for name in manifest.stores
        if name not in logged and read_offset(engine, name) is not None
    ]
    for name in stale:
        place.file.forget(name)
        facts = manifest.stores[name]
        if not facts.changelog and all(spec.name != name for spec in specs):
            # An earlier layout did not record the changelog. Without changelog and offset, the
            # rows would count as the only copy.
            changelog, _ = place.file.partition(name)
            manifest.stores[name] = msgspec.structs.replace(facts, changelog=changelog)
    rows: list[EngineRow] = [(OFFSET + name.encode(), None) for name in stale]
    if manifest.stores != known:
        rows.append(manifest.row())
    if rows:
        # durable: a store missing from the manifest is taken for new, even if it has rows
        engine.write(rows, durable=True)


def _open_on_engine(
    place: Place,
    spec: StoreSpec,
    engine: Engine,
    make: Callable[[StoreSpec, Engine | None], StoreForTasks],
    opened: Opened,
    topics: Mapping[str, str],
    unfit: Mapping[str, str],
) -> None:
    manifest = Manifest.read(engine, place.task)
    known = dict(manifest.stores)
    if spec.name in known and spec.name not in unfit:
        _refuse_another_kind(place.task, spec, known[spec.name], topics)
    store = opened.stores[spec.name] = make(spec, engine)
    _open_on_disk(place, spec, store, engine, manifest, opened, topics, unfit)
    _record(place, engine, manifest, known, [spec])


def _open_on_disk(
    place: Place,
    spec: StoreSpec,
    store: StoreForTasks,
    engine: Engine,
    manifest: Manifest,
    opened: Opened,
    topics: Mapping[str, str],
    unfit: Mapping[str, str],
) -> None:
    name = spec.name
    changelog = topics.get(name, name) if spec.logging else ""
    is_known = name in manifest.stores
    facts = StoreFacts(0, spec.kind.value, store.segment_ms, spec.retain_duplicates, changelog)
    reason = unfit.get(name)
    if reason is None and is_known and (reason := manifest.misfit(name, facts)):
        reason = None if upgrade(engine, manifest, name, facts, place.task) else reason
    if reason is not None and is_known:
        give_up(place.task, [spec], place.directory, reason)
        place.file.forget(name)
        prefix = bytes((manifest.stores[name].id,))
        encoded = name.encode()
        engine.write(
            [(OFFSET + encoded, None), (FACTS + encoded, None), (POSITION + encoded, None)],
            [(prefix, after(prefix))],
            durable=True,
        )
    begins_anew = reason is not None or not is_known
    file = None
    if place.directory is not None and (position := f"{name}{SUFFIX}") in place.names:
        file = place.directory / position
    store.prefix = bytes((manifest.admit(name, facts, place.task),))
    if begins_anew:
        place.positions.recall(engine, name, file, empty=True)
        if isinstance(store, Transactional):
            store.bare = True
        return
    offset = recall(
        engine,
        store,
        place.checkpoint.get(place.file.partition(name)),
        lambda why: give_up(place.task, [spec], place.directory, why),
    )
    if offset is not None:
        opened.offsets[name] = opened.written[name] = offset
    place.positions.recall(engine, name, file, empty=store.logged and offset is None)
