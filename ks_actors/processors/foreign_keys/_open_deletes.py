"""The left keys whose results may be stale: their deletes are under way or were dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast, final
from zlib import crc32

from ks_actors.processors.foreign_keys._subscription_wrapper import KEY_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from ks_actors.processors.api import NodeContext
    from ks_actors.records import Headers
    from ks_actors.serdes import Serde

IF_STALE: Final = ("ks-actors-delete-if-stale", None)
"""The header of a response without a row that Kafka Streams would not send.

The response goes to a left row that is new, or keeps its foreign key, if there is no right row.
Then the result has no row either, unless the deleting response was dropped.
"""


_BITS: Final = 28
_WORDS: Final = 2
_MOST_CLEARED: Final = 100_000


@final
class OpenDeletes:
    """The keys of one task whose results may be stale, until the next response.

    A key is open if its left row no longer subscribes, while the response is under way, or if a
    response without a row was dropped. Responses of different right partitions come in any order:
    the response to a new row may overtake the response to the deleted row. A row that has changed
    since its subscription gets another response, which resolves the key.

    The committed progress has 56 bits; a hash of each open key selects a bit. After a restart, a
    result without a row is deleted again if its key shares the bit of a key that is still open. For
    most such keys the delete is needless, but few keys share a bit unless many keys were open.
    """

    __slots__ = ("_bits", "_changes", "_cleared", "_former", "_keys", "_write")

    def __init__(
        self, progress: MutableMapping[str, int], name: str, write: Callable[[Any], bytes]
    ) -> None:
        self._write: Callable[[Any], bytes] = write
        self._keys: set[bytes] = set()
        self._cleared: set[bytes] = set()
        # The number of open keys that have each bit.
        self._bits: list[int] = [0] * (_BITS * _WORDS)
        words = [int(progress.get(_name(name, word), 0)) for word in range(_WORDS)]
        self._changes: int = max(word >> _BITS for word in words)
        self._former: int = sum(
            (word & ((1 << _BITS) - 1)) << (_BITS * at) for at, word in enumerate(words)
        )

    @classmethod
    def of(cls, context: NodeContext, topic: str, primary_key: Serde[Any] | None) -> OpenDeletes:
        """Return the keys of the join with this topic of subscriptions, for all its nodes."""
        # Nodes of a task share its progress, which also keeps the stream clocks.
        progress = cast("MutableMapping[str, object]", context.progress)
        name = f"{topic}-open"
        found = progress.get(_name(name, 0))
        if isinstance(found, _Word):
            return found.deletes
        write = context.key_serde(primary_key).serializer(
            f"{context.application_id}-{topic}{KEY_TOPIC}", is_key=True
        )
        made = cls(context.progress, name, write)
        for word in range(_WORDS):
            progress[_name(name, word)] = _Word(made, word)
        return made

    def word(self, at: int) -> int:
        """Return a word of bits, below the number of changes; the highest word is the latest."""
        bits = self._former >> (_BITS * at)
        here = self._bits[_BITS * at : _BITS * (at + 1)]
        now = sum(1 << bit for bit, count in enumerate(here) if count)
        return (self._changes << _BITS) | (bits & ((1 << _BITS) - 1)) | now

    def add(self, key: Any) -> None:
        """Note a key: its row no longer subscribes, or a response without a row was dropped."""
        index = self._write(key)
        if index not in self._keys:
            self._keys.add(index)
            self._bits[_bit(index)] += 1
            self._changes += 1

    def resolve(self, key: Any) -> bool:
        """Remove a key whose current value has a response; return whether the key may be open."""
        if not self._keys and not self._former:
            return False
        index = self._write(key)
        if index in self._keys:
            self._keys.discard(index)
            self._bits[_bit(index)] -= 1
            self._changes += 1
            self._clear(index)
            return True
        if not self._former >> _bit(index) & 1 or index in self._cleared:
            return False
        self._clear(index)
        return True

    def _clear(self, index: bytes) -> None:
        """Note that the former state of a key no longer matters, for up to `_MOST_CLEARED` keys."""
        if self._former and len(self._cleared) < _MOST_CLEARED:
            self._cleared.add(index)


@final
class _Word:
    """One of the numbers that each commit reads."""

    __slots__ = ("_at", "deletes")

    def __init__(self, deletes: OpenDeletes, at: int) -> None:
        self.deletes: OpenDeletes = deletes
        self._at = at

    def __index__(self) -> int:
        return self.deletes.word(self._at)


def _name(name: str, word: int) -> str:
    return f"{name}-{word}"


def _bit(index: bytes) -> int:
    return crc32(index) % (_BITS * _WORDS)


def without_mark(headers: Headers) -> Headers:
    """Return the headers without IF_STALE."""
    return tuple(header for header in headers if header != IF_STALE)
