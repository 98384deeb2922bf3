"""The tracing of an app that is not traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextvars import Context

    from ks_actors.records import Batch, Headers, TopicPartition
    from ks_actors.tracing._contract import TaskTracing


@final
class _Untraced:
    """No spans: records keep their headers."""

    on: bool = False

    def begin(self, partition: TopicPartition, batch: Batch) -> Batch:  # noqa: ARG002 - the contract's
        """Return the same records."""
        return batch

    def within(
        self, process: Callable[[Any, Any, int, Headers], None]
    ) -> Callable[[Any, Any, int, Headers], None]:
        """Return the same function."""
        return process

    def send(
        self,
        topic: str,  # noqa: ARG002 - the contract's
        headers: Headers,
        *,
        origin: Headers | None = None,  # noqa: ARG002 - the contract's
    ) -> Headers:
        """Return the same headers."""
        return headers

    def failed(self, headers: Headers, error: BaseException) -> None:
        """Do nothing."""

    def unreadable(
        self,
        partition: TopicPartition,  # noqa: ARG002 - the contract's
        offset: int,  # noqa: ARG002 - the contract's
        headers: Headers,
    ) -> Headers:
        """Return the same headers."""
        return headers

    def end(self) -> None:
        """Do nothing."""

    def call(
        self,
        node: str,  # noqa: ARG002 - the contract's
        headers: Sequence[Headers],  # noqa: ARG002 - the contract's
        context: Context,  # noqa: ARG002 - the contract's
    ) -> _NoSpan:
        """Return a span that does nothing."""
        return _NoSpan()


@final
class _NoSpan:
    """A span that does nothing."""

    def end(self, error: BaseException | None) -> None:
        """Do nothing."""


UNTRACED: Final[TaskTracing] = _Untraced()
"""The tracing of tasks that are not traced."""
