"""The left keys whose results may be stale, since a delete of them is under way or was dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast, final

from ks_actors.processors.foreign_keys._subscription_wrapper import KEY_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from ks_actors.processors.api import NodeContext
    from ks_actors.records import Headers
    from ks_actors.serdes import Serde

IF_STALE: Final = ("ks-actors-delete-if-stale", None)
"""The header of a response without a row that Kafka Streams would not send.

It is for a left row that is new, or keeps its foreign key, where no right row is. The result has no
row then, unless a response that should have deleted it was dropped.
"""


@final
class OpenDeletes:
    """The keys of one task whose results may be stale, until the next response.

    They are those of left rows that no longer subscribe, while the response is under way, and those
    for which a response without a row was dropped. Responses of different right partitions come in
    any order: that to a new row may overtake that to the deleted row. A row that has changed since
    its subscription gets another response, which resolves the key.

    The committed progress says whether there were such keys. After a restart they are unknown, and
    any key may be one: results without a row are deleted again, which is needless for most.
    """

    __slots__ = ("_keys", "_opened", "_progress", "_resolved", "_unknown", "_write")

    def __init__(
        self, progress: MutableMapping[str, int], name: str, write: Callable[[Any], bytes]
    ) -> None:
        self._write: Callable[[Any], bytes] = write
        self._progress: MutableMapping[str, int] = progress
        self._resolved: str = f"{name}-settled"
        self._keys: set[bytes] = set()
        self._opened: int = int(progress.get(name, 0))
        self._unknown: bool = self._opened > progress.get(self._resolved, 0)

    @classmethod
    def of(cls, context: NodeContext, topic: str, primary_key: Serde[Any] | None) -> OpenDeletes:
        """Return the keys of the join with this topic of subscriptions, for all its nodes."""
        # Nodes of a task share its progress, which also keeps the stream clocks.
        progress = cast("MutableMapping[str, object]", context.progress)
        name = f"{topic}-open"
        found = progress.get(name)
        if isinstance(found, OpenDeletes):
            return found
        write = context.key_serde(primary_key).serializer(
            f"{context.application_id}-{topic}{KEY_TOPIC}", is_key=True
        )
        made = cls(context.progress, name, write)
        progress[name] = made
        return made

    def __index__(self) -> int:
        """Return how many keys were ever open, for each commit to read."""
        return self._opened

    def add(self, key: Any) -> None:
        """Note a key: its row no longer subscribes, or a response without a row was dropped."""
        index = self._write(key)
        if index not in self._keys:
            self._keys.add(index)
            self._opened += 1

    def resolve(self, key: Any) -> bool:
        """Remove a key when its current value has a response; return whether it may be noted."""
        if self._keys:
            index = self._write(key)
            if index in self._keys:
                self._keys.discard(index)
                self._progress[self._resolved] = self._progress.get(self._resolved, 0) + 1
                return True
        return self._unknown


def without_mark(headers: Headers) -> Headers:
    """Return the headers without IF_STALE."""
    return tuple(header for header in headers if header != IF_STALE)
