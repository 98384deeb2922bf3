"""Typed serdes write equal objects as equal bytes."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from random import Random
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import attrs
import msgspec
import pytest

from ks_actors import serdes
from ks_actors.dsl import Consumed, Materialized, StreamsBuilder
from ks_actors.serdes import LONG, Serde
from ks_actors.testing import TopologyTestDriver
from tests.examples_of import examples

_WRITE_SETS = """
import msgspec
from ks_actors import serdes

class Row(msgspec.Struct):
    tags: set[str]
    more: dict[str, frozenset[str]]

tags = {f"tag {index}" for index in range(20)}
row = Row(tags, {"all": frozenset(tags)})
for make in (serdes.json, serdes.msgpack):
    print(make(Row).serializer("t")(row).hex(), make(set[str]).serializer("t")(tags).hex())
"""


@pytest.mark.unmeasured
def test_sets_have_the_same_bytes_in_each_process() -> None:
    """The order of a set of texts depends on the seed of the process, that of its bytes does not."""
    outputs = {
        subprocess.run(  # noqa: S603 - this interpreter
            [sys.executable, "-c", _WRITE_SETS], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().count(b"\n") == 2


# mypy knows no types that are made of drawn fields.
namedtuple_of: Any = NamedTuple
typeddict_of: Any = TypedDict


class Kind(NamedTuple):
    """A type of a field: its values, and equal objects that are other ones."""

    type_: Any
    draw: Callable[[Random], Any]
    again: Callable[[Any], Any]


def same(value: Any) -> Any:
    return value


def anew(text: str) -> str:
    """Return an equal text that is another object."""
    return "".join([*text])


SCALARS = [
    Kind(int, lambda random: random.choice([0, 1, 1_000, -(1 << 40)]), lambda number: int(str(number))),
    Kind(str, lambda random: random.choice(["", "a", "a longer text", "\u00e9"]), anew),
    Kind(float, lambda random: random.choice([0.5, 1.0, 1_000.0]), lambda number: int(number) if number.is_integer() else number),
    Kind(bool, lambda random: random.random() < 0.5, same),
    Kind(int | None, lambda random: random.choice([None, 1_000]), lambda number: number and int(str(number))),
    Kind(Literal["a", "b"], lambda random: random.choice(["a", "b"]), same),
    Kind(Annotated[int, msgspec.Meta(ge=0)], lambda random: random.randrange(2_000), same),
]
"""No -0.0, and no numbers of several types: these are equal, and are told apart."""


def is_hashable(value: Any) -> bool:
    try:
        return hash(value) is not None
    except TypeError:
        return False


def made_of(kinds: list[Kind], random: Random) -> Kind:
    """Return a class with fields of these kinds, most with defaults, of any sort."""
    names = random.sample(["id", "customer", "at", "z", "a_b"], len(kinds))
    drawn = {name: kind.draw(random) for name, kind in zip(names, kinds, strict=True)}
    defaults = {name: value for name, value in drawn.items() if random.random() < 0.7 and is_hashable(value)}
    types = dict(zip(names, (kind.type_ for kind in kinds), strict=True))
    fields: list[Any] = [
        (name, type_, dataclasses.field(default=defaults[name])) if name in defaults else (name, type_) for name, type_ in types.items()
    ]
    sort = random.choice(["dataclass", "slotted", "attrs", "slotted attrs", "struct", "omitting", "array", "named", "dict"])
    cls: Any
    # Memory of their own, as that of a cached property, is no field of an object.
    remember = {"size": cached_property(lambda _: 7)}
    match sort:
        case "dataclass":
            cls = dataclasses.make_dataclass("Made", fields, frozen=True, kw_only=True, namespace=remember)
        case "slotted":
            cls = dataclasses.make_dataclass("Made", fields, frozen=True, kw_only=True, slots=True)
        case "attrs" | "slotted attrs":
            parts: dict[str, Any] = {name: attrs.field(type=type_, default=defaults.get(name, attrs.NOTHING)) for name, type_ in types.items()}
            cls = attrs.make_class("Made", parts, frozen=True, kw_only=True, slots=sort != "attrs", class_body=remember if sort == "attrs" else {})
        case "struct" | "omitting" | "array":
            given = [(name, type_, defaults[name]) if name in defaults else (name, type_) for name, type_ in types.items()]
            cls = msgspec.defstruct("Made", given, frozen=True, kw_only=True, omit_defaults=sort == "omitting", array_like=sort == "array")
        case "named":
            cls = namedtuple_of("Made", list(types.items()))
        case _:
            cls = typeddict_of("Made", {name: NotRequired[type_] if name in defaults else type_ for name, type_ in types.items()})

    def draw(random: Random) -> Any:
        left_out = {name for name in defaults if sort != "named" and random.random() < 0.5}
        return cls(**{name: kind.draw(random) for name, kind in zip(names, kinds, strict=True) if name not in left_out})

    def again(value: Any) -> Any:
        order = random.sample(names, len(names))
        of = dict(zip(names, kinds, strict=True))
        if isinstance(value, dict):
            return {name: of[name].again(value[name]) for name in order if name in value}
        made = cls(**{name: of[name].again(getattr(value, name)) for name in order})
        if hasattr(made, "size"):
            assert made.size == 7
        return made

    return Kind(cls, draw, again)


def kind_of(random: Random, depth: int = 3) -> Kind:
    """Draw a type with objects, containers and scalars in it."""
    if depth == 0 or random.random() < 0.2:
        return random.choice(SCALARS)
    if random.random() < 0.7:
        return made_of([kind_of(random, depth - 1) for _ in range(random.randrange(1, 4))], random)
    kind = kind_of(random, depth - 1)
    of: dict[str, Any] = {"list": list.__class_getitem__(kind.type_), "tuple": tuple.__class_getitem__((kind.type_, ...))}
    of["dict"] = dict.__class_getitem__((str, kind.type_))
    match random.choice(["list", "tuple", "set", "dict"]):
        case "list":
            return Kind(of["list"], lambda random: [kind.draw(random) for _ in range(random.randrange(4))], lambda items: [*map(kind.again, items)])
        case "tuple":
            return Kind(of["tuple"], lambda random: (kind.draw(random),), lambda items: (*map(kind.again, items),))
        case "set":
            return Kind(frozenset[int], lambda random: frozenset(random.sample(range(0, 640, 64), 5)), lambda items: frozenset(sorted(items)))
        case _:
            return Kind(
                of["dict"],
                lambda random: {text: kind.draw(random) for text in random.sample("abcd", 3)},
                lambda items: {text: kind.again(items[text]) for text in sorted(items)},
            )


def shuffled(plain: Any, random: Random) -> Any:
    if isinstance(plain, dict):
        return {name: shuffled(plain[name], random) for name in random.sample([*plain], len(plain))}
    return [shuffled(item, random) for item in plain] if isinstance(plain, list) else plain


def equal_objects(kind: Kind, random: Random, form: Any) -> list[Any]:
    """Return objects that are equal: of the program, read from other members in other orders, and read without some of them."""
    value = kind.draw(random)
    found = [value, kind.again(value)]
    for one in [*found]:
        plain = msgspec.to_builtins(one)
        for other in (plain, shuffled(plain, random), without_some(plain, random)):
            try:
                read = form.decode(form.encode(other), type=kind.type_)
            except msgspec.ValidationError:
                continue  # a member that is needed
            if read == value:
                found.append(read)
    return found


def without_some(plain: Any, random: Random) -> Any:
    if isinstance(plain, dict):
        return {name: without_some(part, random) for name, part in plain.items() if random.random() < 0.7}
    return [without_some(item, random) for item in plain] if isinstance(plain, list) else plain


@pytest.mark.parametrize("seed", range(examples(100)))
def test_equal_keys_have_equal_bytes(seed: int) -> None:
    """They may come from the program, or from data that leave defaults out, or have their members in another order."""
    random = Random(seed)
    kind = kind_of(random)
    while kind in SCALARS:
        kind = kind_of(random)
    for make, form in ((serdes.json, msgspec.json), (serdes.msgpack, msgspec.msgpack)):
        serde: Serde[Any] = make(kind.type_)
        write, write_value, read = serde.serializer("t", is_key=True), serde.serializer("t"), serde.deserializer("t")
        for _ in range(5):
            objects = equal_objects(kind, random, form)
            assert len({write(each) for each in objects}) == 1, [write(each) for each in objects]
            assert all(read(write(each)) == read(write_value(each)) == each for each in objects)


@dataclasses.dataclass(frozen=True)
class Frozen:
    customer: str
    level: int = 0


def test_a_key_of_the_program_and_one_that_leaves_a_default_out_are_one_row() -> None:
    """Both count in one row, and a value that was read without a default is written with it."""
    builder = StreamsBuilder()
    keys = serdes.json(Frozen)
    builder.stream("in", Consumed(keys, keys)).group_by_key().count(Materialized("counts", keys, LONG))
    with TopologyTestDriver(builder.build()) as driver:
        for key in (b'{"customer":"c"}', keys.serializer("in", is_key=True)(Frozen("c"))):
            driver.create_input_topic("in", serdes.BYTES, serdes.BYTES).pipe_input(key, key)
        assert [(row[0], row[1].value) for row in driver.get_state_store("counts").all()] == [(Frozen("c"), 2)]
    read = keys.deserializer("in")(b'{"customer":"c"}')
    assert keys.serializer("in")(read) == b'{"customer":"c","level":0}'
