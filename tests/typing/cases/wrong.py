"""Code that must not pass: each line with its error."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import ks_actors
from actors import Actor, Ref, Signal, Spec, System
from ks_actors import StreamsBuilder, TimeWindows
from tests.typing.protocol import Add, Get, Other

if TYPE_CHECKING:
    from actors.testing import TestKit


class Counter(Actor[Add | Get]):
    def receive(self, message: Add | Get, /) -> None:
        match message:
            case Add():
                self.ctx.timers.once("k", 1.0, Other("x"))  # error: arg-type
            case Get():
                message.reply.tell("text")  # error: arg-type
                self.ctx.stash(Other("x"))  # error: arg-type


class Forgets(Actor[Add | Get]):
    def receive(self, message: Add | Get, /) -> None:
        match message:
            case Add():
                pass
            case _:
                assert_never(message)  # error: arg-type


class WrongMessage(Actor[Add]):
    def receive(self, message: Other, /) -> None:  # error: override
        pass


class WrongSignal(Actor[Add]):
    def receive(self, message: Add, /) -> None:
        message.n = 2  # error: misc

    def signal(self, signal: Signal, /) -> int:  # error: override
        return 1


def wants_text(text: str) -> None: ...
def wants_others(ref: Ref[Other]) -> None: ...
def wants_more(ref: Ref[Add | Get | Other]) -> None: ...


async def use(system: System) -> None:
    ref = await system.spawn(Spec(Counter), "counter")
    ref.tell(Other("x"))  # error: arg-type
    ref.offer("x")  # error: arg-type
    await ref.put(1)  # error: arg-type
    wants_text(await ref.ask(Get, "key"))  # error: arg-type
    wants_others(ref)  # error: arg-type
    wants_more(ref)  # error: arg-type
    await ref.ask(Get)  # error: call-arg
    await ref.ask(Get, 7)  # error: arg-type
    await ref.ask(Other)  # error: arg-type
    ref.narrow(len).tell(Add(1))  # error: arg-type
    await system.spawn(Spec(int), "int")  # error: arg-type


async def probes(kit: TestKit) -> None:
    probe = kit.probe(Add)
    probe.tell(Other("x"))  # error: arg-type


def guesses(builder: StreamsBuilder) -> None:
    builder.stream("in").mapValues(str)  # error: attr-defined
    builder.stream("in")["a"]  # error: index
    builder.table("in").to("out")  # error: attr-defined
    TimeWindows.of(5)  # error: attr-defined
    TimeWindows.of_size_with_no_grace("5")  # error: arg-type
    ks_actors.KStream  # error: attr-defined
    ks_actors.App(builder, "shop", broker="kafka://a:1")  # error: call-arg
