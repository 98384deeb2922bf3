"""An actor under the control of a test."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar, final

from actors.actor import HANDLED, Actor, Handled
from actors.messages import Ref, Signal, Terminated

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.actor import Cell
    from actors.testing._kit import TestKit

M = TypeVar("M")
T = TypeVar("T")


class Recorder(Actor[Any]):
    """The actor behind a probe."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.new: deque[Any] = deque()
        self.signals: deque[Signal] = deque()

    def receive(self, message: Any, /) -> None:
        """Record the message."""
        self.all.append(message)
        self.new.append(message)

    def signal(self, signal: Signal, /) -> Handled:
        """Record the signal; the test judges failures of watched actors."""
        self.signals.append(signal)
        return HANDLED


@final
class Probe(Ref[M]):
    """A ref that delivers messages to the test. Waits are in virtual time and cost nothing."""

    __slots__ = ("_kit", "_recorder")

    def __init__(self, kit: TestKit, cell: Cell, recorder: Recorder) -> None:
        super().__init__(cell.inbox)
        self._kit = kit
        self._recorder = recorder

    @property
    def received(self) -> tuple[M, ...]:
        """All messages so far, expected or not, oldest first."""
        return tuple(self._recorder.all)

    async def expect(self, kind: type[T], /, *, within: float = 1.0) -> T:
        """Return the next message, which must be a `kind`; wait up to `within` seconds for it.

        Raises AssertionError with the message that came instead.
        """
        new = self._recorder.new
        if not await self._until(lambda: bool(new), within):
            raise AssertionError(
                self._explain(f"expected {_name(kind)} within {within:g} s, but nothing came")
            )
        message = new.popleft()
        if not isinstance(message, kind):
            raise AssertionError(  # noqa: TRY004 - a test's expectation
                self._explain(f"expected {_name(kind)}, but {message!r} came")
            )
        return message

    async def silent(self) -> None:
        """Wait until the system is quiet; raise AssertionError for an unexpected message."""
        await self._kit.quiesce()
        if self._recorder.new:
            raise AssertionError(
                self._explain(f"expected nothing, but {self._recorder.new[0]!r} came")
            )

    def watch(self, ref: Ref[Any], /) -> None:
        """Watch an actor, for `signals`."""
        self._recorder.ctx.watch(ref)

    def unwatch(self, ref: Ref[Any], /) -> None:
        """Stop watching an actor."""
        self._recorder.ctx.unwatch(ref)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals so far that `terminated` has not taken, oldest first.

        The signals are Started, Terminated and Pressure.
        """
        return tuple(self._recorder.signals)

    async def terminated(self, ref: Ref[Any], /, *, within: float = 1.0) -> Terminated:
        """Watch an actor, wait until it has ended, and return its Terminated.

        The actor's failure is no longer raised at the end of the test.
        """
        self.watch(ref)
        signals = self._recorder.signals

        def found() -> Terminated | None:
            return next(
                (
                    signal
                    for signal in signals
                    if isinstance(signal, Terminated) and signal.ref == ref
                ),
                None,
            )

        await self._until(lambda: found() is not None, within)
        end = found()
        if end is None:
            raise AssertionError(
                self._explain(
                    f"expected the end of {ref.path} within {within:g} s, but it is alive"
                )
            )
        signals.remove(end)
        failures = self._kit.failures
        failures[:] = [
            failure for failure in failures if getattr(failure, "path", None) != ref.path
        ]
        return end

    async def _until(self, there: Callable[[], bool], within: float) -> bool:
        clock = self._kit.clock
        deadline = clock.time() + within
        await self._kit.quiesce()
        while not there() and clock.time() < deadline:
            due = clock.next_due()
            await clock.advance((deadline if due is None else min(due, deadline)) - clock.time())
        return there()

    def _explain(self, what: str) -> str:
        kit = self._kit
        lines = [f"probe {self.path}: {what} (seed {kit.seed}, time {kit.clock.time():g} s)"]
        lines += [f"  received before: {message!r}" for message in self._recorder.all]
        lines += [f"  failed: {failure!r}" for failure in kit.failures]
        lines += [
            f"  undelivered: {each.message!r} to {each.path} ({each.reason})"
            for each in kit.undelivered
        ]
        lines += [
            f"  {info.path}: {info.state}, {info.depth} queued, handling {info.current}"
            for info in kit.tree()
            if info.depth or info.current
        ]
        return "\n".join(lines)


def _name(kind: Any) -> str:
    """Return the name of a class; a union such as `int | str` has none and names its classes."""
    return str(getattr(kind, "__name__", kind))
