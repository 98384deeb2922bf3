"""The left keys whose results may be stale, since a response without a row was dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext
    from ks_actors.records import Headers

IF_STALE: Final = ("ks-actors-delete-if-stale", None)
"""The header of a response without a row that Kafka Streams would not send.

It is for a left row that is new, or keeps its foreign key, where no right row is. The result has no
row then, unless a response that should have deleted it was dropped.
"""


class DroppedDeletes:
    """The keys of one task for which a response without a row was dropped, until the next response.

    A row that has changed since its subscription gets another response, which settles the key. The
    committed progress says whether there were such keys; after a restart they are unknown, and any
    key may be one.
    """

    def __init__(self, context: NodeContext, topic: str, write: Callable[[Any], bytes]) -> None:
        self._write: Callable[[Any], bytes] = write
        self._progress = context.progress
        self._dropped: str = f"{topic}-dropped"
        self._settled: str = f"{topic}-settled"
        self._keys: set[bytes] = set()
        self._unknown: bool = self._progress.get(self._dropped, 0) > self._progress.get(
            self._settled, 0
        )

    def add(self, key: Any) -> None:
        """Note a key: a response without a row was dropped for it."""
        index = self._write(key)
        if index not in self._keys:
            self._keys.add(index)
            self._progress[self._dropped] = self._progress.get(self._dropped, 0) + 1

    def settle(self, key: Any) -> bool:
        """Remove a key when its current value has a response; return whether it may be noted."""
        if self._keys:
            index = self._write(key)
            if index in self._keys:
                self._keys.discard(index)
                self._progress[self._settled] = self._progress.get(self._settled, 0) + 1
                return True
        return self._unknown


def without_mark(headers: Headers) -> Headers:
    """Return the headers without IF_STALE."""
    return tuple(header for header in headers if header != IF_STALE)
