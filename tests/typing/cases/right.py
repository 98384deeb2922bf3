"""Code that type checkers accept, with the types they infer."""

from __future__ import annotations

from typing import assert_never, assert_type

from actors import HANDLED, Actor, Ask, Handled, Ref, Reply, Restart, Signal, Spec, Started, System, Terminated
from actors.testing import Probe, TestKit
from tests.typing.protocol import Add, Get, Other


class Counter(Actor[Add | Get]):
    def __init__(self) -> None:
        self.total = 0

    def receive(self, message: Add | Get, /) -> None:
        match message:
            case Add(n):
                self.total += n
            case Get(reply, key):
                assert_type(reply, Reply[int])
                reply.tell(self.total + len(key))
            case _:
                assert_never(message)

    async def signal(self, signal: Signal, /) -> Handled | None:
        if isinstance(signal, Started):
            self.ctx.timers.once("k", 1.0, Add(1))
            assert_type(self.ctx.self_ref, Ref[Add | Get])
        return HANDLED if isinstance(signal, Terminated) else None


class Waiting(Actor[Add]):
    async def receive(self, message: Add, /) -> None:
        assert_type(await self.ctx.blocking(len, "abc"), int)
        self.ctx.pipe(self.ctx.blocking(int, "1"), lambda n: Add(n), lambda error: Add(len(str(error))))


async def use(system: System) -> None:
    spec = Spec(Counter, supervise=lambda error: Restart(limit=1) if isinstance(error, KeyError) else Restart())
    ref = await system.spawn(spec, "counter")
    assert_type(ref, Ref[Add | Get])
    ref.tell(Add(1))
    await ref.put(Add(1))
    assert_type(ref.offer(Add(1)), bool)
    assert_type(await ref.ask(Get, "key"), int)
    assert_type(await ref.ask(Get, key="key").within(1), int)
    ask: Ask[int] = ref.ask(Get, "key")
    assert_type(await ask, int)
    adders: Ref[Add] = ref
    adders.tell(Add(2))
    texts = narrowed(ref)
    texts.tell(Other("x"))


def narrowed(ref: Ref[Add]) -> Ref[Other]:
    def adapt(other: Other) -> Add:
        return Add(len(other.text))

    return ref.narrow(adapt)


async def probes(kit: TestKit) -> None:
    probe = kit.probe(Add)
    assert_type(probe, Probe[Add])
    assert_type(await probe.expect(Add), Add)
    adders: Ref[Add] = probe
    adders.tell(Add(1))
