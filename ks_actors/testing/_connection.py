"""A process's connection to a log, which a test may cut."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ks_actors.log import (
    DelegatedFetcher,
    DelegatedMembership,
    DelegatingLog,
    IsolationLevel,
    TellsGroups,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ks_actors.log import (
        BaseMembership,
        Fetcher,
        GroupMember,
        Log,
        LogRequest,
        NewMember,
        OffsetAndMetadata,
        TopicPartition,
    )

P = ParamSpec("P")
T = TypeVar("T")


class Connection(DelegatingLog):
    """A `Log` that delegates to another log until it is cut, as if its process had died.

    From then on no call gets through or returns, except calls that close something. The log does
    not notice: transactions stay open, and members stay in their groups, until their timeouts.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._fetchers: list[Fetcher] = []
        # Memberships of an embedded log, which can expire.
        self.memberships: list[Any] = []
        self.is_cut: bool = False

    def cut(self) -> None:
        """Cut the connection: no later call gets through."""
        self.is_cut = True

    async def reap(self) -> None:
        """Close the open fetchers, which a log does not track."""
        for fetcher in self._fetchers:
            await fetcher.close()

    async def through(
        self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Make a call; if the connection is cut first, it never returns."""
        if not self.is_cut:
            try:
                result = await call(*args, **kwargs)
            except Exception:
                if not self.is_cut:
                    raise
            else:
                if not self.is_cut:
                    return result
        # As in a dead process, the call never returns.
        await asyncio.get_running_loop().create_future()
        raise AssertionError("this wait ends only by cancellation")

    async def ask(
        self,
        request: LogRequest,  # noqa: ARG002 - tests look at the call
        call: Callable[P, Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Make a call of the log or of one of its parts by `through`."""
        return await self.through(call, *args, **kwargs)

    def tell(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Make a call that does not wait, unless the connection is cut."""
        if not self.is_cut:
            call(*args, **kwargs)

    async def end(
        self,
        what: str,  # noqa: ARG002 - nothing is logged
        call: Callable[[], Awaitable[None]],
    ) -> None:
        """Close a part, unless the connection is cut."""
        if not self.is_cut:
            await call()

    def fetcher(
        self, *, client_id: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> Fetcher:
        """Return a new reader."""
        inner = self._log.fetcher(client_id=client_id, isolation=isolation)
        self._fetchers.append(inner)
        return DelegatedFetcher(self, inner)

    async def join(self, group_id: str, member: NewMember, /) -> BaseMembership:
        """Join a group."""
        inner = await self.through(self._log.join, group_id, member)
        self.memberships.append(inner)
        return DelegatedMembership(self, inner)

    async def group_members(self, group_id: str, /) -> Sequence[GroupMember]:
        """Return the members of a group."""
        return await self.through(self._groups.group_members, group_id)

    async def group_offsets(self, group_id: str, /) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group."""
        return await self.through(self._groups.group_offsets, group_id)

    @property
    def _groups(self) -> TellsGroups:
        assert isinstance(self._log, TellsGroups)
        return self._log
