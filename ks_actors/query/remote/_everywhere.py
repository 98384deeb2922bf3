"""The partitions of all instances: who is asked, again and again until the deadline."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

from ks_actors._errors import FailureReason, KsActorsError, NotRunning, QueryFailed
from ks_actors.query._calls import NO_KEY
from ks_actors.query._reach import count
from ks_actors.query.remote._caller import Unreachable
from ks_actors.query.remote._messages import Ask
from ks_actors.query.remote._places import not_present, owner_of
from ks_actors.query.remote._rows import COUNT, merged, place_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from ks_actors.query._calls import Call
    from ks_actors.query._local import Part
    from ks_actors.query._reach import How
    from ks_actors.query._scan import Scan
    from ks_actors.query.remote._caller import Caller
    from ks_actors.query.remote._places import Endpoint, InstanceEndpoint, StoreFacts
    from ks_actors.query.remote._rows import LocalRow, Wire
    from ks_actors.query.remote._server import Here

T = TypeVar("T")
_RETRIED: Final = frozenset({FailureReason.NOT_PRESENT, FailureReason.NOT_ACTIVE})
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.2
_HEDGE_SECONDS: Final = 0.05
_ATTEMPT_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 5.0
"""The longest wait for more rows; an instance that still looks for rows says so each second."""


class Directory(Protocol):
    """The known instances of an app."""

    def endpoints(self) -> Sequence[InstanceEndpoint]:
        """Return the instances as last known."""
        ...

    async def refresh(self) -> None:
        """Look whether there is news; never raises for instances that do not answer."""
        ...

    def facts(self, store: str) -> StoreFacts:
        """Return the facts about a store as last known: its partitions may become more."""
        ...


@final
class Everywhere:
    """The partitions of all instances, for one store.

    Partitions of this instance are read in place. The instance with the active task answers for the
    others, while its membership lease holds. With `stale` a standby is asked as well when there is
    no answer within 50 ms, or when the task is being restored. Each lookup and each scan is tried
    again until its deadline while instances move, restart or do not answer; a scan only as long as
    it has returned no row.
    """

    def __init__(
        self,
        directory: Directory,
        caller: Caller,
        wire: Wire,
        here: Here | None = None,
    ) -> None:
        self._directory = directory
        self._caller = caller
        self._wire = wire
        self._here = here
        # Lookups of global stores take turns at all instances.
        self._turn = 0

    async def first(self, how: How, call: Call) -> Any:
        """Return the answer of the partition that has the key, or of the given partition."""
        await self._check(how, call.key)

        def look_up() -> Awaitable[Any]:
            facts = self._directory.facts(how.store)
            partition = self._home(how, facts, call.key)
            ask = partial(self._asked, facts, partition, call)
            return self._answer(how, facts, partition, call, ask)

        return await self._again(how, look_up)

    async def count(self, how: How) -> int:
        """Return the approximate number of keys of all instances."""
        return await self._again(how, lambda: self._count(how))

    async def rows(self, how: How, scan: Scan) -> AsyncGenerator[list[Any], None]:
        """Yield the rows of a scan in one order over all instances, a slice at a time."""
        await self._check(how, scan.key)
        tries = _Tries(how)
        while True:
            began = False
            try:
                async with aclosing(self._scanned(how, scan, tries.count)) as found:
                    async for rows in found:
                        began = began or bool(rows)
                        yield [scan.show(row) for row in rows]
                return
            except (QueryFailed, Unreachable) as error:
                failed = _query_failed(error, how)
                if began or failed.reason not in _RETRIED:
                    raise failed from (None if failed is error else error)
                await tries.pause(failed)
            await self._refreshed(tries)

    # Which partitions, and who has them.

    async def _check(self, how: How, key: Any) -> None:
        """Raise QueryFailed if the store lacks the given partition, also by the latest news.

        Without one, raise it for a key of a grouped store: its partition is never known.
        """
        partition = how.partition
        if partition is None:
            facts = self._directory.facts(how.store)
            if facts.grouped and key is not NO_KEY:
                self._home(how, facts, key)
            return
        if self._has(how.store, partition):
            return
        await self._refreshed(_Tries(how))
        if not self._has(how.store, partition):
            count = self._directory.facts(how.store).partitions
            raise QueryFailed(
                f"store {how.store} has no partition {partition}: it has {count}",
                reason=FailureReason.DOES_NOT_EXIST,
                store=how.store,
                partition=partition,
            )

    def _has(self, store: str, partition: int) -> bool:
        facts = self._directory.facts(store)
        return facts.subtopology is None or partition in facts.numbers

    def _home(self, how: How, facts: StoreFacts, key: Any) -> int:
        data = self._wire.keys.key_bytes(key)
        return facts.home(how.store, data) if how.partition is None else how.partition

    def _partitions(self, how: How, facts: StoreFacts, key: Any) -> Sequence[int]:
        if key is not NO_KEY:
            return [self._home(how, facts, key)]
        return facts.numbers if how.partition is None else [how.partition]

    def _local(self, how: How, partition: int, *, stale: bool) -> Part | None:
        """Return a partition if it is here and active; with `stale` in any role."""
        if self._here is None:
            return None
        local = self._here.local
        local.check_running()
        if local.is_global(how.store):
            return local.global_part(how.store)
        part = local.part(how.store, partition)
        return part if part is not None and (stale or part.active) else None

    def _holders(self, facts: StoreFacts, partition: int) -> list[Endpoint]:
        """Return the endpoints of instances with a partition, that with the active task first.

        All instances have a global store: they take turns to be the first.
        """
        if facts.subtopology is None:
            ends = [one.endpoint for one in self._directory.endpoints() if one.endpoint is not None]
            self._turn += 1
            at = self._turn % len(ends) if ends else 0
            return ends[at:] + ends[:at]
        owner = owner_of(self._directory.endpoints(), facts, partition)
        return [*([owner.active] if owner.active is not None else []), *owner.standbys]

    def _owner(self, how: How, facts: StoreFacts, partition: int) -> Endpoint:
        """Return the endpoint of the instance with the active task. Raises QueryFailed."""
        if facts.subtopology is None:
            found = next(iter(self._holders(facts, partition)), None)
        else:
            found = owner_of(self._directory.endpoints(), facts, partition).active
        if found is None:
            raise not_present(
                f"partition {partition} of store {how.store} is on no instance now, or on one "
                "without application_server",
                how.store,
                partition,
            )
        return found

    # Lookups.

    async def _answer(
        self,
        how: How,
        facts: StoreFacts,
        partition: int,
        call: Callable[[Any], Any],
        ask: Callable[..., Awaitable[Any]],
    ) -> Any:
        """Return the answer of a partition: here by `call`, elsewhere by `ask`."""
        part, here = self._local(how, partition, stale=False), self._here
        if part is not None and here is not None and not how.stale:
            return await here.look_up(part, call, stale=False)
        if facts.subtopology is not None and not how.stale:
            return await ask(self._owner(how, facts, partition), stale=False)
        return await hedged(self._ways(how, facts, partition, call, ask, part))

    def _ways(
        self,
        how: How,
        facts: StoreFacts,
        partition: int,
        call: Callable[[Any], Any],
        ask: Callable[..., Awaitable[Any]],
        part: Part | None,
    ) -> list[Callable[[], Awaitable[Any]]]:
        """Return the ways to an answer that may be stale: the active task, then standbys.

        The last way is an active task that is still being restored. A global store is the same on
        all instances.
        """
        here, ways = self._here, list[Any]()
        if part is not None and here is not None:
            ways.append(lambda: here.look_up(part, call, stale=False))
        if facts.subtopology is None:
            ways += [partial(ask, at, stale=True) for at in self._holders(facts, partition)]
        else:
            owner = owner_of(self._directory.endpoints(), facts, partition)
            active = [] if owner.active is None or part is not None else [owner.active]
            ways += [partial(ask, at, stale=False) for at in active]
            other = self._local(how, partition, stale=True)
            if other is not None and here is not None:
                ways.append(lambda: here.look_up(other, call, stale=True))
            ways += [partial(ask, at, stale=True) for at in (*owner.standbys, *active)]
        if not ways:
            self._owner(how, facts, partition)
        return ways

    async def _asked(
        self, facts: StoreFacts, partition: int, call: Call, endpoint: Endpoint, *, stale: bool
    ) -> Any:
        ask = self._wire.ask(call, _named(facts, [partition]), stale=stale, of=facts.partitions)
        found = await _running(self._caller.look_up(endpoint, ask))
        return self._wire.answer(found.rows, call)

    async def _count(self, how: How) -> int:
        facts, total = self._directory.facts(how.store), 0
        for partition in self._partitions(how, facts, NO_KEY):
            ask = partial(self._counted, how, facts, partition)
            total += await self._answer(how, facts, partition, count, ask)
        return total

    async def _counted(
        self, how: How, facts: StoreFacts, partition: int, endpoint: Endpoint, *, stale: bool
    ) -> int:
        numbers, of = _named(facts, [partition]), facts.partitions
        ask = Ask(how.store, COUNT, numbers, None, [], how.committed, stale=stale, of=of)
        return (await _running(self._caller.look_up(endpoint, ask))).count

    # Scans.

    async def _scanned(
        self, how: How, scan: Scan, attempt: int
    ) -> AsyncGenerator[list[LocalRow], None]:
        facts = self._directory.facts(how.store)
        here: list[Part] = []
        others: dict[Endpoint, list[int]] = {}
        for partition in self._partitions(how, facts, scan.key):
            part = self._local(how, partition, stale=how.stale and attempt > 0)
            if part is not None:
                here.append(part)
                continue
            holders = self._holders(facts, partition) if how.stale else []
            endpoint = (
                holders[attempt % len(holders)] if holders else self._owner(how, facts, partition)
            )
            others.setdefault(endpoint, []).append(partition)
        streams = [self._remote(how, facts, scan, at, numbers) for at, numbers in others.items()]
        if here:
            streams.append(self._in_place(how, scan, here))
        try:
            async with aclosing(merged(streams, reverse=scan.reverse)) as found:
                async for rows in found:
                    yield rows
        finally:
            for stream in streams:
                await stream.aclose()

    async def _in_place(
        self, how: How, scan: Scan, parts: list[Part]
    ) -> AsyncGenerator[list[LocalRow], None]:
        assert self._here is not None
        async with aclosing(self._here.rows(parts, scan, stale=how.stale)) as found:
            async for rows in found:
                yield [(place_of(place), key, entry) for place, key, entry in rows]

    async def _remote(
        self, how: How, facts: StoreFacts, scan: Scan, endpoint: Endpoint, partitions: list[int]
    ) -> AsyncGenerator[list[LocalRow], None]:
        call: Any = scan.begin
        numbers = _named(facts, partitions)
        ask = self._wire.ask(call, numbers, stale=how.stale, of=facts.partitions)
        async with aclosing(self._caller.rows(endpoint, ask)) as found:
            while True:
                try:
                    async with asyncio.timeout(_SILENCE_SECONDS):
                        some = await _running(anext(found, None))
                except TimeoutError as late:
                    raise Unreachable(f"{endpoint} sent nothing for {_SILENCE_SECONDS} s") from late
                if some is None:
                    return
                yield self._wire.local_rows(some.rows, call)

    # Tries.

    async def _again(self, how: How, attempt: Callable[[], Awaitable[T]]) -> T:
        tries = _Tries(how)
        while True:
            try:
                async with asyncio.timeout_at(tries.attempt_until()):
                    return await attempt()
            except (QueryFailed, Unreachable, TimeoutError) as error:
                failed = _query_failed(error, how)
                if failed.reason not in _RETRIED:
                    raise failed from (None if failed is error else error)
                await tries.pause(failed)
            await self._refreshed(tries)

    async def _refreshed(self, tries: _Tries) -> None:
        try:
            async with asyncio.timeout_at(tries.deadline):
                await self._directory.refresh()
        except TimeoutError:
            pass  # the next attempt raises the error that says why


@final
class _Tries:
    """The attempts at one answer, with pauses in between, until the deadline."""

    def __init__(self, how: How) -> None:
        self._clock = asyncio.get_running_loop().time
        self.deadline: float = self._clock() + how.timeout_ms / 1000
        self.count: int = 0
        self._pause = _FIRST_PAUSE

    def attempt_until(self) -> float:
        """Return the deadline of the next attempt: a frozen instance must not use up all time."""
        return min(self.deadline, self._clock() + _ATTEMPT_SECONDS)

    async def pause(self, failed: QueryFailed) -> None:
        """Wait before the next attempt; raise the failure if there is no time for one."""
        self.count += 1
        if self._clock() + self._pause >= self.deadline:
            raise failed
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def _named(facts: StoreFacts, partitions: list[int]) -> list[int]:
    """Return the partitions as a request names them: none of a global store."""
    return [] if facts.subtopology is None else partitions


async def _running(answer: Awaitable[T]) -> T:
    """Return an answer of another instance; one that starts or ends counts as unreachable."""
    try:
        return await answer
    except NotRunning as error:
        raise Unreachable(str(error)) from error


def _query_failed(error: Exception, how: How) -> QueryFailed:
    if isinstance(error, QueryFailed):
        return error
    text = str(error) or "no instance answered in time"
    return not_present(f"store {how.store}: {text}", how.store, how.partition)


async def hedged(ways: Sequence[Callable[[], Awaitable[T]]]) -> T:
    """Return the first answer; begin the next way when one fails, or after 50 ms.

    Raises the error of the first way if all fail.
    """
    running: list[asyncio.Future[T]] = []
    errors: dict[asyncio.Future[T], BaseException] = {}
    left = list(ways)
    try:
        while left or len(errors) < len(running):
            if left:
                running.append(asyncio.ensure_future(left.pop(0)()))
            waited = [one for one in running if one not in errors]
            done, _ = await asyncio.wait(
                waited,
                timeout=_HEDGE_SECONDS if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for one in waited:
                if one in done:
                    error = one.exception()
                    if error is None:
                        return one.result()
                    if not isinstance(error, KsActorsError | Unreachable):
                        raise error
                    errors[one] = error
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    raise errors[running[0]]
