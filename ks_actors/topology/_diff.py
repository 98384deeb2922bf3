"""The effects of replacing a topology: on state, on topics, and on the records that are read."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ks_actors.serdes import reads, with_default, wraps_key
from ks_actors.topology._nodes import SinkNode, SourceNode
from ks_actors.topology._store_engine import type_words
from ks_actors.topology._stores import HEADED, StorePlace, bare_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.topology._stores import StoreKind, StoreSpec
    from ks_actors.topology._subtopologies import Subtopology
    from ks_actors.topology._topology import Topology


class Effect(Enum):
    """The effect of a change on one store or topic."""

    KEPT = "kept"
    """The store or topic continues unchanged."""
    RESTORED = "restored"
    """The state continues, but its tasks have other ids, so it is restored from the changelog."""
    BEGINS = "begins"
    """It is new: a store is empty, a topic is created, an input starts by `auto_offset_reset`."""
    REFILLED = "refilled"
    """The store has the rows of another topic, and has lost its former rows."""
    LEFT = "left behind"
    """Nothing uses it any more. It stays in the log until a reset or a user deletes it."""
    MIXED = "mixed"
    """It continues, but its old rows have another meaning than its new rows."""
    LOST = "lost"
    """State that is in no changelog is lost, or records that wait in a topic."""
    REFUSED = "refused"
    """The app does not start, or cannot read existing data: reset it, or choose another name."""


class Change(msgspec.Struct, frozen=True):
    """The effect of a replacement on one store or topic."""

    kind: Literal["store", "source", "sink", "repartition"]
    name: str
    effect: Effect
    reason: str

    @property
    def harmless(self) -> bool:
        """Whether no state and no record is lost, and the app starts."""
        return self.effect in {Effect.KEPT, Effect.RESTORED, Effect.BEGINS}


class _Defaults(NamedTuple):
    """The default serdes of the old and the new app, of keys and of values."""

    old: tuple[Any, Any]
    new: tuple[Any, Any]

    def read(self, before: Any, after: Any, *, is_key: bool = False) -> bool:
        """Return whether a serde reads everything that its predecessor has written."""
        old, new = (
            with_default(serde, given[0 if is_key or wraps_key(serde) else 1])
            for serde, given in ((before, self.old), (after, self.new))
        )
        return reads(new, old, is_key=is_key)


def compare(
    old: Topology,
    new: Topology,
    *,
    old_serdes: tuple[Any, Any] = (None, None),
    new_serdes: tuple[Any, Any] = (None, None),
) -> tuple[Change, ...]:
    """Return the changes of stores and topics when `new` replaces a running `old`.

    Both run with the same application id, log and state directories. Stores come first, then
    repartition topics, sources and sinks, each by name. The default serdes of keys and values stand
    for missing serdes of a topology; unknown serdes (None) count as unchanged. Functions are not
    inspected, nor are serdes of a user. Numbers of partitions are not known here: if a new source
    changes the number of partitions of internal topics, the app refuses to start.
    """
    defaults = _Defaults(old_serdes, new_serdes)
    return (
        *_stores(old, new, defaults),
        *_repartitions(old, new, defaults),
        *_sources(old, new),
        *_sinks(old, new),
    )


def _owners(topology: Topology) -> dict[str, Subtopology]:
    return {store: each for each in topology.subtopologies() for store in each.stores}


def _stores(old: Topology, new: Topology, defaults: _Defaults) -> Iterator[Change]:
    before, after = _owners(old), _owners(new)
    for name in sorted({*before, *after}):
        if name not in after:
            yield _gone(before[name].stores[name])
        elif name not in before:
            yield Change(
                "store", name, Effect.BEGINS, "there is no state of this name: it is empty"
            )
        else:
            yield _changed(before[name], after[name], name, defaults)
    for name in sorted({*old.global_stores, *new.global_stores}):
        if name not in new.global_stores:
            yield Change("store", name, Effect.LEFT, "the global store is not used any more")
        elif name not in old.global_stores:
            yield Change("store", name, Effect.BEGINS, "the global store is filled from its topic")
        else:
            yield _global(old, new, name, defaults)


def _global(old: Topology, new: Topology, name: str, defaults: _Defaults) -> Change:
    was, now = (
        next(each.topic for each in topology.global_topics.values() if each.store == name)
        for topology in (old, new)
    )
    before, after = old.global_stores[name], new.global_stores[name]
    effect, reason = Effect.KEPT, "the global store goes on with its topic"
    if was != now:
        effect = Effect.REFILLED
        reason = _by_rows(was, now)
    elif (unread := _unread(before, after, defaults)) is not None:
        effect, reason = Effect.MIXED, unread
    return Change("store", name, effect, reason)


def _gone(spec: StoreSpec) -> Change:
    if not spec.logging:
        return Change(
            "store", spec.name, Effect.LOST, "it has no changelog, and is not used any more"
        )
    where = (
        f"topic {spec.source_topic}"
        if spec.source_topic is not None
        else f"<application id>-{spec.name}-changelog"
    )
    return Change(
        "store", spec.name, Effect.LEFT, f"nothing reads it any more; its rows stay in {where}"
    )


def _changed(owner: Subtopology, heir: Subtopology, name: str, defaults: _Defaults) -> Change:
    before, after = owner.stores[name], heir.stores[name]
    if before.logging and after.logging:
        if (unlike := _unlike(before, after)) is not None:
            return Change("store", name, Effect.REFUSED, unlike)
        found = _logged(owner, heir, name)
    else:
        found = _only_on_disk(owner, heir, name)
    if found.harmless and (mixed := _mixed(before, after, defaults)) is not None:
        return Change("store", name, Effect.MIXED, mixed)
    return found


def _mixed(before: StoreSpec, after: StoreSpec, defaults: _Defaults) -> str | None:
    """Return the reason why the old rows have another meaning; None if they do not."""
    if (unread := _unread(before, after, defaults)) is not None:
        return unread
    was, now = before.rows_of, after.rows_of
    if isinstance(was, tuple) and isinstance(now, tuple):
        roles = ("foreign keys", "left keys", "left values")
        for role, one, other in zip(roles, was, now, strict=True):
            if not defaults.read(one, other, is_key=role != roles[-1]):
                return _by_serde(role, one, other)
    elif was != now and _facts(was) != _facts(now):
        return _by_rows(was, now)
    elif was is None and (
        before.window_size_ms != after.window_size_ms
        or before.retain_duplicates != after.retain_duplicates
    ):
        return (
            f"its windows were of {before.window_size_ms} ms, and are of {after.window_size_ms} ms"
        )
    return None


def _unread(
    before: StoreSpec | SourceNode, after: StoreSpec | SourceNode, defaults: _Defaults
) -> str | None:
    """Return the serde (of keys or values) that does not read the old rows; None if both do."""
    if not defaults.read(before.key, after.key, is_key=True):
        return _by_serde("keys", before.key, after.key)
    if not defaults.read(before.value, after.value):
        return _by_serde("values", before.value, after.value)
    return None


def _by_serde(role: str, before: Any, after: Any) -> str:
    was, now = ("the app's default" if each is None else repr(each) for each in (before, after))
    if was == now:
        return f"its {role} are written by {now}, whose type has changed"
    return f"its {role} were written by {was}, and are read by {now}"


def _facts(rows_of: Any) -> Any:
    """Return the windows of rows as plain values, without the grace period."""
    inner = getattr(rows_of, "windows", rows_of)
    known: dict[str, Any] | None = getattr(inner, "__dict__", None)
    if known is None:
        return inner
    named = {name: value for name, value in known.items() if not name.startswith("_")}
    return type(inner).__qualname__, {**named, "grace_ms": None}


def _by_rows(was: Any, now: Any) -> str:
    return f"its rows were those of {_rows_of(was)}, and are those of {_rows_of(now)}"


def _rows_of(rows_of: Any) -> str:
    if rows_of is None:
        return "an operation"
    return f"topic {rows_of}" if isinstance(rows_of, str) else repr(rows_of)


def _unlike(before: StoreSpec, after: StoreSpec) -> str | None:
    """Return the reason why the new store cannot use the changelog; None if it can."""
    if bare_kind(before.kind.value) != bare_kind(after.kind.value):
        return _kinds(before, after)
    if after.seen_ms > before.seen_ms:
        return (
            f"it keeps rows for {after.seen_ms} ms, and kept them for {before.seen_ms} ms: raise "
            "retention.ms of its changelog before"
        )
    if after.history_retention_ms > before.history_retention_ms:
        return (
            f"it keeps versions for {after.history_retention_ms} ms, and kept them for "
            f"{before.history_retention_ms} ms: raise min.compaction.lag.ms of its changelog before"
        )
    return None


def _kinds(before: StoreSpec, after: StoreSpec) -> str:
    return f"it was a {_word(before.kind)} store, and is a {_word(after.kind)} store"


def _misfit(before: StoreSpec, after: StoreSpec) -> str | None:
    """Return the reason why the new store cannot use rows on disk; None if it can."""
    if bare_kind(before.kind.value) != bare_kind(after.kind.value) or _rewritten(before, after):
        return _kinds(before, after)
    if before.segment_ms != after.segment_ms:
        return f"it kept rows for {before.retention_ms} ms, and keeps them for {after.retention_ms}"
    if before.retain_duplicates is not after.retain_duplicates:
        return "it keeps duplicates in one version only"
    return None


def _rewritten(before: StoreSpec, after: StoreSpec) -> bool:
    """Return whether rows on disk have to be restored; stores with headers can use other rows."""
    return before.kind is not after.kind and after.kind not in HEADED


def _logged(owner: Subtopology, heir: Subtopology, name: str) -> Change:
    before, after = owner.stores[name], heir.stores[name]
    effect, reason = Effect.RESTORED, ""
    if before.source_topic != after.source_topic and before.rows_of != after.rows_of:
        effect = Effect.REFILLED
        reason = _by_rows(before.rows_of, after.rows_of)
    elif before.source_topic is not None and after.source_topic is None:
        effect = Effect.LOST
        reason = f"its changelog was topic {before.source_topic}; its own lacks the rows"
    elif before.source_topic != after.source_topic:
        reason = f"its changelog is topic {after.source_topic} now"
    elif owner.id != heir.id:
        reason = f"its tasks were {owner.id}_… and are {heir.id}_…: the changelog has its rows"
    elif before.type != after.type:
        reason = f"its type was {type_words(before.type)}, and is {type_words(after.type)}"
    elif _rewritten(before, after):
        reason = f"it was a {_word(before.kind)} store, and is a {_word(after.kind)} store"
    elif before.kind is not after.kind:
        effect, reason = Effect.KEPT, "its rows are rewritten on disk, without headers"
    else:
        effect, reason = Effect.KEPT, "name, kind and tasks are the same"
    return Change("store", name, effect, reason)


def _only_on_disk(owner: Subtopology, heir: Subtopology, name: str) -> Change:
    """Return the change of a store that has, or had, no changelog."""
    before, after = owner.stores[name], heir.stores[name]
    if owner.id != heir.id:
        return _lost(owner, heir, name)
    effect = Effect.LOST
    if after.logging:
        reason = "it has a changelog now, which lacks the rows that it had before"
    elif "in_memory" in (before.type, after.type):
        reason = "it is, or was, in memory, and no changelog has its rows"
    elif before.type != after.type and StorePlace.ENGINE in (before.place, after.place):
        reason = "its rows are in another engine, and no changelog has them"
    elif (misfit := _misfit(before, after)) is not None:
        effect, reason = Effect.REFUSED, f"{misfit}, and has no changelog to be restored from"
    elif before.logging:
        effect, reason = Effect.KEPT, "it has no changelog any more: a lost disk loses its rows"
    else:
        effect, reason = Effect.KEPT, "it stays on the disk of its task, without changelog"
    return Change("store", name, effect, reason)


def _lost(owner: Subtopology, heir: Subtopology, name: str) -> Change:
    return Change(
        "store",
        name,
        Effect.LOST,
        f"its tasks were {owner.id}_… and are {heir.id}_…, and no changelog has its rows",
    )


def _word(kind: StoreKind) -> str:
    return kind.value.replace("_", "-")


def _repartitions(old: Topology, new: Topology, defaults: _Defaults) -> Iterator[Change]:
    before, after = old.internal_topics, new.internal_topics
    readers = _readers(old), _readers(new)
    for name in sorted({*before, *after}):
        if name not in after:
            yield Change(
                "repartition",
                name,
                Effect.LOST,
                "nothing reads it any more: records that are in it are not processed",
            )
        elif name not in before:
            yield Change("repartition", name, Effect.BEGINS, "the topic is created")
        elif before[name].partitions != after[name].partitions:
            yield Change(
                "repartition",
                name,
                Effect.REFUSED,
                f"its partitions were {_count(before[name].partitions)}, and are "
                f"{_count(after[name].partitions)}: the topic exists with the old number",
            )
        elif (unread := _unread_in(name, *readers, defaults)) is not None:
            yield Change("repartition", name, Effect.MIXED, f"{unread}: records that are in it")
        else:
            yield Change("repartition", name, Effect.KEPT, "records in it are processed")


def _readers(topology: Topology) -> dict[str, SourceNode]:
    return {
        topic: node
        for node in topology.nodes.values()
        if isinstance(node, SourceNode)
        for topic in node.topics
    }


def _unread_in(
    name: str, before: dict[str, SourceNode], after: dict[str, SourceNode], defaults: _Defaults
) -> str | None:
    if name not in before or name not in after:
        return None
    return _unread(before[name], after[name], defaults)


def _count(partitions: int | None) -> str:
    return "those upstream" if partitions is None else str(partitions)


def _read(topology: Topology) -> dict[str, Subtopology]:
    found = {}
    for each in topology.subtopologies():
        names = [*each.source_topics, *(pattern.pattern for pattern in each.source_patterns)]
        found.update(dict.fromkeys((n for n in names if n not in topology.internal_topics), each))
    return found


def _sources(old: Topology, new: Topology) -> Iterator[Change]:
    # Compare topics, not tasks: committed offsets belong to the group, whichever task continues.
    before, after = _read(old), _read(new)
    for name in sorted({*before, *after}):
        if name not in after:
            yield Change(
                "source", name, Effect.LEFT, "it is not read any more; the group's offsets stay"
            )
        elif name not in before:
            yield Change(
                "source", name, Effect.BEGINS, "it is read from where auto_offset_reset says"
            )
        else:
            yield Change("source", name, Effect.KEPT, "it is read on from the committed offsets")


def _written(topology: Topology) -> set[str]:
    return {
        node.topic
        for node in topology.nodes.values()
        if isinstance(node, SinkNode)
        # A topic that a function chooses is known only when records come.
        and isinstance(node.topic, str)
        and node.topic not in topology.internal_topics
    }


def _sinks(old: Topology, new: Topology) -> Iterator[Change]:
    before, after = _written(old), _written(new)
    for name in sorted(before | after):
        if name not in after:
            yield Change("sink", name, Effect.LEFT, "nothing is written to it any more")
        elif name not in before:
            yield Change("sink", name, Effect.BEGINS, "it is written to, and has to exist")
        else:
            yield Change("sink", name, Effect.KEPT, "it is written to as before")
