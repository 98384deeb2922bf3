"""Serdes of two versions: `reads` against what the new one does with the bytes of the old one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, make_dataclass
from enum import Enum
from random import Random
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest

from ks_actors.serdes import INTEGER, LONG, STRING, Serde, json, list_of, msgpack, reads
from tests.examples_of import examples


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Shade(Enum):
    RED = "red"
    BLUE = "blue"
    GRAY = "gray"


class Pair(NamedTuple):
    a: int
    b: int = 0


class Longer(NamedTuple):
    a: int
    b: int = 0
    c: int = 0


class Loose(TypedDict, total=False):
    a: int


@dataclass
class Tree:
    a: int
    below: list[Tree]


SCALARS: tuple[tuple[Any, Any], ...] = (
    (int, lambda random: random.randrange(9)),
    (float, lambda random: random.random()),
    (str, lambda random: random.choice("abc")),
    (bool, lambda random: random.random() < 0.5),
    (uuid.UUID, lambda random: uuid.UUID(int=random.getrandbits(128))),
    (Color, lambda random: random.choice(list(Color))),
    (Shade, lambda random: random.choice(list(Shade))),
    (int | None, lambda random: random.choice((None, 1))),
    (Pair, lambda random: Pair(random.randrange(9), 1)),
    (Longer, lambda random: Longer(random.randrange(9), 1, 2)),
)


def drawn_type(random: Random, depth: int = 2) -> tuple[Any, Any]:
    """Draw a type, and the function that draws its objects."""
    shape = random.choice(("scalar", "scalar", "list", "dict", "struct", "array", "dataclass")) if depth else "scalar"
    if shape == "scalar":
        return random.choice(SCALARS)
    if shape in {"list", "dict"}:
        inner: Any
        inner, draw = drawn_type(random, depth - 1)
        if shape == "list":
            return list[inner], lambda random: [draw(random) for _ in range(2)]
        return dict[str, inner], lambda random: {key: draw(random) for key in "xy"}
    fields = [(name, *drawn_type(random, depth - 1), random.random() < 0.3) for name in random.sample("abc", random.randrange(1, 4))]
    fields.sort(key=lambda each: each[3])
    members: list[Any] = [(name, type_ | None, None) if optional else (name, type_) for name, type_, _, optional in fields]
    if shape == "dataclass":
        cls: Any = make_dataclass("Made", [(each[0], each[1]) if len(each) == 2 else each for each in members])
    else:
        cls = msgspec.defstruct("Made", members, array_like=shape == "array", forbid_unknown_fields=random.random() < 0.2)
    return cls, lambda random: cls(**{name: draw(random) for name, _, draw, __ in fields})


def changed_type(random: Random, type_: Any) -> Any:
    """Draw a version of a class, with a field more, one less, or one of another type; or draw another type."""
    if not isinstance(type_, type) or not issubclass(type_, msgspec.Struct):
        return type_ if random.random() < 0.3 else drawn_type(random)[0]
    fields: list[Any] = [(each.name, type_.__annotations__[each.name], *(() if each.required else (None,))) for each in msgspec.structs.fields(type_)]
    change = random.choice(("more", "default", "less", "other", "none"))
    if change == "less" and len(fields) > 1:
        fields.pop()
    elif change == "more":
        fields.insert(0, ("d", int))
    elif change == "default":
        fields.append(("d", int | None, None))
    elif change == "other":
        fields[0] = (fields[0][0], drawn_type(random, 0)[0], *fields[0][2:])
    config = type_.__struct_config__
    return msgspec.defstruct("Made", fields, array_like=config.array_like, forbid_unknown_fields=config.forbid_unknown_fields)


def test_a_serde_said_to_read_what_another_one_wrote_does() -> None:
    """Of random types, one said to read all of another one does so, and one said to write the same keys writes equal bytes."""
    for seed in range(examples(100)):
        random = Random(seed)
        old, draw = drawn_type(random)
        new = changed_type(random, old)
        form = random.choice((json, msgpack))
        for is_key in (False, True):
            if not reads(form(new), form(old), is_key=is_key):
                continue
            write, read = form(new).serializer("t", is_key=is_key), form(new).deserializer("t", is_key=is_key)
            for _ in range(5):
                data = form(old).serializer("t", is_key=is_key)(draw(random))
                assert not is_key or write(read(data)) == data, f"seed {seed}: {old} -> {new}"


@pytest.mark.parametrize(
    ("old", "new", "value", "key"),
    [
        (LONG, LONG, True, True),
        (LONG, INTEGER, False, False),
        (LONG, None, True, True),
        (json(int), json(int), True, True),
        (json(int), json(float), True, False),
        (json(float), json(int), False, False),
        (json(int), msgpack(int), False, False),
        (json(str), json(), True, True),
        (json(), json(str), False, False),
        (json(int), json(int | None), True, True),
        (json(int | None), json(int), False, False),
        (json(Color), json(Shade), True, True),
        (json(Shade), json(Color), False, False),
        (json(Pair), json(Longer), True, False),
        (json(Longer), json(Pair), False, False),
        (json(Loose), json(Loose), True, True),
        (json(Tree), json(Tree), True, True),
        (json(list[int]), json(set[int]), True, True),
        (list_of(LONG), list_of(LONG), True, True),
        (list_of(LONG), list_of(STRING), False, False),
        (list_of(LONG), LONG, False, False),
        (Serde.of(str.encode, bytes.decode), Serde.of(lambda it: it, lambda it: it), True, True),
        (Serde.of(str.encode, bytes.decode, name="one"), Serde.of(str.encode, bytes.decode, name="two"), False, False),
    ],
)
def test_serdes_of_two_versions_are_compared(old: Any, new: Any, value: bool, key: bool) -> None:
    """Values are read by a serde that knows all of their type, keys by one that writes equal bytes."""
    assert reads(new, old) is value
    assert reads(new, old, is_key=True) is key
