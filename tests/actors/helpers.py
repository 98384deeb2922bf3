"""Actors that tests are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from actors import HANDLED, Actor, Context, Message, Ref, Reply, Restart, Signal, Spec, Started, Terminated
from actors.testing import TestKit

Job: TypeAlias = Callable[["Do"], Any]


class Boom(Exception):
    """The errors that tests raise."""


class Do(Actor[Any]):
    """Carry out the message: it is a function of the actor, or something to write down.

    `on` says what to do at a signal of some type; a Terminated that stands there counts as handled.
    """

    def __init__(self, log: list[Any] | None = None, on: dict[type[Any], Callable[[Do, Any], Any]] | None = None) -> None:
        self.log: list[Any] = [] if log is None else log
        self.on = on or {}

    def receive(self, message: Any, /) -> Any:
        if isinstance(message, Call):
            return self._call(message)
        if callable(message):
            return message(self)
        self.log.append(message)
        return None

    async def _call(self, call: Call) -> None:
        outcome = call.do(self)
        call.reply.tell(await outcome if hasattr(outcome, "__await__") else outcome)

    async def signal(self, signal: Signal, /) -> Any:
        do = self.on.get(type(signal))
        if do is None:
            return None
        outcome = do(self, signal)
        if hasattr(outcome, "__await__"):
            await outcome
        return HANDLED


class Call(Message, frozen=True):
    """Do it and answer with the outcome."""

    reply: Reply[Any]
    do: Callable[[Do], Any]


class Keep(Message, frozen=True):
    """A request with a reply that the actor keeps, to answer later or never."""

    reply: Reply[Any]


class Silent(Actor[Any]):
    """Hear no signals: the other way to start."""

    def __init__(self, log: list[Any] | None = None) -> None:
        self.log: list[Any] = [] if log is None else log

    def receive(self, message: Any, /) -> Any:
        if callable(message):
            return message(self)
        self.log.append(message)
        return None


def ctx_of(actor: Actor[Any]) -> Context[Any]:
    return actor.ctx


def boom(*_: object) -> None:
    raise Boom("boom")


def restart_at_once(**options: Any) -> Callable[[Exception], Restart]:
    return lambda _: Restart(**{"backoff": (0.0, 0.0), **options})


async def do(kit: TestKit, name: str = "a", **options: Any) -> tuple[Ref[Any], list[Any]]:
    """Spawn a `Do`; return its ref and its log, which its later incarnations share."""
    log: list[Any] = []
    on = options.pop("on", None)
    return await kit.spawn(Spec(lambda: Do(log, on), **options), name), log


def note(what: type[Any], *others: type[Any]) -> dict[type[Any], Callable[[Do, Any], Any]]:
    """Write signals of these types down."""
    return {kind: lambda me, signal: me.log.append(signal) for kind in (what, *others)}


def started(log: list[Any]) -> list[int]:
    return [entry.incarnation for entry in log if isinstance(entry, Started)]


def ends(log: list[Any]) -> list[Terminated]:
    return [entry for entry in log if isinstance(entry, Terminated)]
