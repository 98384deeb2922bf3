"""The opening of a task's stores with their usable state on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ks_actors.state._discard import give_up
from ks_actors.state._positions import POSITION
from ks_actors.state.core import Transactional, after
from ks_actors.state.disk import FACTS, OFFSET, Manifest, StoreFacts, recall, upgrade
from ks_actors.topology import StoreKind, StorePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ks_actors.state._custom import CustomStores
    from ks_actors.state._positions import Positions
    from ks_actors.state.core import Engine, StoreForTasks
    from ks_actors.state.disk import CheckpointFile
    from ks_actors.topology import StoreSpec


class Place(NamedTuple):
    """The location of a task's stores, and the sources of their offsets and positions."""

    task: str
    directory: Path | None
    file: CheckpointFile
    custom: CustomStores
    positions: Positions


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
    *,
    topics: Mapping[str, str],
    unfit: Mapping[str, str],
) -> Opened:
    """Make the stores, each with its state on disk: in `engine`, or in one of its own in `engines`.

    A store that is `unfit`, for the reason given, begins empty; the others keep their state.
    `topics` are the changelogs by store. Blocks. Raises TaskCorrupted when the database cannot be
    read, StateError for an unusable store without changelog, and any error of custom stores.
    """
    opened = Opened({}, {}, {})
    manifest = None if engine is None else Manifest.read(engine, place.task)
    known = {} if manifest is None else dict(manifest.stores)
    for spec in specs:
        if spec.kind is StoreKind.CUSTOM:
            opened.stores[spec.name] = place.custom.open(
                spec, place.file.read(), opened.offsets, opened.written, unfit.get(spec.name)
            )
        elif (own := engines.get(spec.name)) is not None:
            _open_on_engine(place, spec, own, make, opened, topics, unfit)
        elif engine is None or manifest is None or spec.place is StorePlace.MEMORY:
            opened.stores[spec.name] = make(spec, None)
        else:
            store = opened.stores[spec.name] = make(spec, engine)
            _open_on_disk(place, spec, store, engine, manifest, opened, topics, unfit)
    if engine is not None and manifest is not None and manifest.stores != known:
        # durable: a store missing from the manifest is taken for new, even if it has rows
        engine.write([manifest.row()], durable=True)
    return opened


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
    store = opened.stores[spec.name] = make(spec, engine)
    _open_on_disk(place, spec, store, engine, manifest, opened, topics, unfit)
    if manifest.stores != known:
        engine.write([manifest.row()], durable=True)


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
        prefix = bytes((manifest.stores[name].id,))
        encoded = name.encode()
        engine.write(
            [(OFFSET + encoded, None), (FACTS + encoded, None), (POSITION + encoded, None)],
            [(prefix, after(prefix))],
            durable=True,
        )
    begins_anew = reason is not None or not is_known
    store.prefix = bytes((manifest.admit(name, facts, place.task),))
    if begins_anew:
        place.positions.recall(engine, name, place.directory, empty=True)
        if isinstance(store, Transactional):
            store.bare = True
        return
    offset = recall(
        engine,
        store,
        place.file.read().get(place.file.partition(name)),
        lambda why: give_up(place.task, [spec], place.directory, why),
    )
    if offset is not None:
        opened.offsets[name] = opened.written[name] = offset
    place.positions.recall(engine, name, place.directory, empty=store.logged and offset is None)
