"""Ask several servers at once, when the first servers are silent."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterable

C = TypeVar("C", bound="Hashable")
T = TypeVar("T")


class NoneAnswered(Exception, Generic[C]):
    """The failures of the candidates, in order of time, and the silent candidates."""

    def __init__(self, failures: dict[C, Exception], silent: list[C]) -> None:
        super().__init__(f"{len(failures)} failed, {len(silent)} are silent")
        self.failures: dict[C, Exception] = failures
        self.silent: list[C] = silent


async def first_answer(
    candidates: Iterable[C],
    ask: Callable[[C], Coroutine[Any, Any, T]],
    *,
    patience_s: Callable[[C], float],
    others_may: Callable[[BaseException], bool],
    unwanted: Callable[[T], object],
    may_take_long: Callable[[C], bool],
) -> T:
    """Return the first answer of one of the candidates.

    The candidates are asked in turn. The next candidate is asked when the previous candidate has
    failed, or has been silent for its `patience_s`, which may change meanwhile. After an answer the
    other calls are cancelled; `unwanted` gets an answer that arrives nevertheless. An error for
    which `others_may` is false is raised at once. Raises NoneAnswered when all have failed; also
    when some have failed, the last has used up its patience, and no silent one `may_take_long`.
    """
    left = deque(dict.fromkeys(candidates))
    clock = asyncio.get_running_loop().time
    asked: dict[asyncio.Task[T], C] = {}
    failures: dict[C, Exception] = {}
    due = -math.inf
    if not left:
        raise NoneAnswered(failures, [])

    def gives_up() -> bool:
        return bool(failures) and not any(map(may_take_long, asked.values()))

    latest, since = left[0], clock()
    try:
        while left or asked:
            if left and clock() >= due:
                latest, since = left.popleft(), clock()
                asked[asyncio.create_task(ask(latest), name=f"ask {latest}")] = latest
            elif clock() >= due and gives_up():
                break
            due = since + patience_s(latest)
            limited = left or gives_up()
            done, _ = await asyncio.wait(
                asked,
                timeout=max(0.0, due - clock()) if limited else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            due = since + patience_s(latest)
            for task in done:
                candidate, error = asked[task], task.exception()
                if error is None:
                    del asked[task]
                    return task.result()
                if not isinstance(error, Exception) or not others_may(error):
                    raise error
                failures[asked.pop(task)] = error
                if candidate == latest:
                    due = -math.inf
        raise NoneAnswered(failures, list(asked.values()))
    finally:
        for task in asked:
            task.cancel()
            task.add_done_callback(partial(_drop, unwanted))
        if asked:
            await asyncio.wait(asked)


def _drop(unwanted: Callable[[T], object], task: asyncio.Task[T]) -> None:
    if not task.cancelled() and task.exception() is None:
        unwanted(task.result())
