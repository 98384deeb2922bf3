"""Functions that treat values as user code may: they change their arguments, raise halfway, and return nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from ks_actors import serdes
from ks_actors.processors import Processor, Record, ValueTransformer

RAISES, DELETES = 7, 8


class Bag(msgspec.Struct):
    """An aggregate that can be changed in place."""

    seen: list[int] = msgspec.field(default_factory=list)
    by: dict[str, int] = msgspec.field(default_factory=dict)


@dataclass
class Sack:
    """Another one."""

    seen: list[int] = field(default_factory=list)
    by: dict[str, int] = field(default_factory=dict)


SERDES: dict[str, Any] = {"dict": serdes.json(), "struct": serdes.json(Bag), "dataclass": serdes.msgpack(Sack)}
MAKES: dict[str, Any] = {"dict": lambda: {"seen": [], "by": {}}, "struct": Bag, "dataclass": Sack}


def parts(bag: Any) -> tuple[list[int], dict[Any, int]]:
    """Return the content of an aggregate of any kind."""
    return (bag["seen"], bag["by"]) if isinstance(bag, dict) else (bag.seen, bag.by)


def grow(_: Any, value: dict[str, int], bag: Any) -> Any:
    """Change an aggregate in place; raise halfway at 7, delete at 8. With a dict, whole numbers are keys, which JSON has as text."""
    seen, by = parts(bag)
    number = value["n"]
    seen.append(number)
    if number == RAISES:
        raise ValueError("halfway")
    place = number if isinstance(bag, dict) else str(number)
    by[place] = by.get(place, 0) + 1
    del seen[:-4]
    return None if number == DELETES else bag


def shrink(_: Any, value: dict[str, int], bag: Any) -> Any:
    """Take a value out of an aggregate, in place."""
    seen, by = parts(bag)
    by[str(value["n"])] = by.get(str(value["n"]), 0) - 1
    if value["n"] == RAISES:
        raise ValueError("halfway")
    del seen[:1]
    return bag


def meet(_: Any, one: Any, other: Any) -> Any:
    """Make two aggregates one, in place, and spoil the other."""
    seen, by = parts(one)
    more, counts = parts(other)
    seen.extend(more)
    by.update(counts)
    more.clear()
    counts.clear()
    return one


def reduced(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any] | None:
    """Add up in place, and spoil the other."""
    one["n"] += other["n"]
    one.setdefault("all", []).append(other["n"])
    if other["n"] == RAISES:
        raise ValueError("halfway")
    number, other["n"] = other["n"], 99
    return None if number == DELETES else one


def spoil(value: Any) -> Any:
    """Change a value in place, and return it."""
    if isinstance(value, dict):
        value["spoilt"] = True
        for part in value.values():
            if isinstance(part, list):
                part.append(-1)
    elif value is not None and not isinstance(value, int | str):
        value.seen.append(-1)
        value.by["spoilt"] = 1
    return value


def spoil_row(key: Any, value: Any) -> None:
    """Change a value in place, and its key."""
    spoil(value)
    if isinstance(key, list):
        key.append(-1)


def both(one: Any, other: Any) -> list[Any]:
    """Join two values, and change them."""
    joined = [repr(one), repr(other)]
    spoil(one)
    spoil(other)
    return joined


class Hoard:
    """Does the work of a function, and keeps the aggregates that it has returned, to change them later."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._kept: list[Any] = []

    def __call__(self, *args: Any) -> Any:
        for kept in self._kept[-3:]:
            spoil(kept)
        found = self._function(*args)
        self._kept.append(found)
        return found


class Spoiling(Processor[str, Any, str, Any]):
    """Puts into stores of all kinds, changes the objects that it has put and read, and forwards its findings."""

    def process(self, record: Record[str, Any]) -> None:
        """Read, change, put, change, read again."""
        plain, timed, windows, sessions, past = map(self.context.get_state_store, ("plain", "timed", "windows", "sessions", "past"))
        key, value, at = record.key, record.value, record.timestamp
        found: list[Any] = [repr(plain.get(key)), repr(timed.get(key)), repr(windows.fetch(key, at)), repr(past.get(key))]
        for read in (plain.get(key), windows.fetch(key, at), *(row for _, row in plain.all())):
            spoil(read)
        row = plain.get(key) or {"n": 0, "list": []}
        row["list"].append(value["n"])
        del row["list"][:-3]
        listed = [key, value["n"] % 3]
        plain.put(key, row)
        timed.put(key, (row, at))
        windows.put(key, row, at)
        sessions.put(_session(key, at), row)
        past.put(key, row, at)
        self.context.get_state_store("by-list").put(listed, row)
        spoil(row)
        listed.append(5)
        if value["n"] == RAISES:
            raise ValueError("halfway")
        found += [repr(list(self.context.get_state_store("by-list").all())), repr(list(sessions.fetch(key)))]
        self.context.forward(Record(key, found, at))


def _session(key: str, at: int) -> Any:
    from ks_actors import Window, Windowed  # noqa: PLC0415 - the package imports its parts lazily

    return Windowed(key, Window(at, at))


class Remembering(ValueTransformer[str, Any, Any]):
    """Changes the row that it gets, and returns it."""

    def transform(self, key: str, value: Any | None) -> Any:
        """Spoil it."""
        return None if value is None else spoil(value)
