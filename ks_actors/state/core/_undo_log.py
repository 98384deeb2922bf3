"""Uncommitted changes of a store, and their records in the changelog.

A store keeps one view in memory: the latest values, uncommitted puts included. So a read is one
lookup. Beside the view, two dicts note how to undo the puts:

    _dirty    by key, the value before the first put of the open transaction
              (a put notes it, then changes the view)
    _frozen   the same for the transaction that is being committed
              (freeze turns _dirty into _frozen, O(1))

So the frozen value of a key is in `_dirty` if the key is there, else in the view.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ks_actors.kernel import kernel as _kernel
from ks_actors.records import WORTHWHILE, Batch, EncodedBatch
from ks_actors.state.core._codec import TIME_BYTES, Codec, unpack_time
from ks_actors.state.core._memory_budget import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""No value is known in memory; it may be on disk."""

SLICE: Final = 1000
"""Changelog records per slice."""

BY_KEY, BY_KEY_AND_START, BY_START_AND_KEY = range(3)
"""Shapes of dicts with entries, as numbered by `write_changes` of the kernel."""

WRITTEN_BYTES: Final = 128 << 10
"""The most bytes of a slice that is encoded in one pass.

Larger slices become columns, which share large values with the store.
"""

RECORD_BYTES: Final = 300
"""Measured heap of an uncommitted record besides the bytes of key and value.

The value that it replaces is included.
"""

LOGGED_BYTES: Final = 32
"""The bytes of a changelog record besides key and value."""

_first: Final = itemgetter(0)
_second: Final = itemgetter(1)

Handle = TypeVar("Handle")
"""The identity of a change: a key, or a key and a window."""


class UndoLog(ABC, Measured, Generic[Handle]):
    """The uncommitted changes of one store. Its public members are for TaskStores alone."""

    def __init__(self, codec: Codec, record_time: Callable[[], int]) -> None:
        self.name: str = codec.name
        self._codec: Codec = codec
        self._time: Callable[[], int] = record_time
        self._mutable: bool = codec.mutable
        self._dirty: dict[Handle, Any] = {}
        self._frozen: dict[Handle, Any] = {}
        self._deleted: dict[Handle, int] = {}
        self._frozen_deleted: dict[Handle, int] = {}
        # typical bytes of key and value, where these are not counted one by one
        self._typical: int = 0
        self._size: int = 0  # bytes of the changes that are counted one by one
        self._frozen_size: int = 0

    @abstractmethod
    def _now(self, handle: Handle) -> Any:
        """Return the view's value: an entry, its bytes, None, or MISSING."""

    @abstractmethod
    def _put_back(self, handle: Handle, value: Any) -> None:
        """Restore an earlier value of `_now` in the view."""

    @abstractmethod
    def _frozen_values(self, handles: list[Handle]) -> list[Any]:
        """Return the frozen values of these handles, as `_frozen_value` does for one."""

    @abstractmethod
    def _log_keys(self, handles: list[Handle]) -> list[bytes]:
        """Return the changelog keys of these handles."""

    def uncommitted_bytes(self) -> int:
        """Return the approximate bytes of the open transaction, in O(1)."""
        return len(self._dirty) * (RECORD_BYTES + self._typical) + self._size

    def freeze(self) -> None:
        """Begin a new transaction and freeze the open one for commit."""
        self._frozen_size, self._size = (
            len(self._dirty) * (LOGGED_BYTES + self._typical) + self._size,
            0,
        )
        self._frozen, self._dirty = self._dirty, {}
        self._frozen_deleted, self._deleted = self._deleted, {}

    def _frozen_value(self, handle: Handle) -> Any:
        dirty = self._dirty
        return dirty[handle] if handle in dirty else self._now(handle)

    def _raw(self, handle: Handle, value: Any) -> bytes:
        """Return the bytes of an entry, encoded or not; raises SerializationError."""
        return value if type(value) is bytes else self._codec.written(handle, value)

    # The changelog.

    def changelog(self, *, batch_bytes: int = 0, marked: bool = False) -> Iterator[Batch]:
        """Return the frozen changes, the last value of each key, in slices.

        `batch_bytes` is the log's largest batch. Such a log gets encoded slices where one pass can
        encode them, other logs get columns. With `marked` the last slice is columns too, because
        the caller adds headers to its last record.
        """
        handles = list(self._frozen)
        for start in range(0, len(handles), SLICE):
            part = handles[start : start + SLICE]
            last = start + SLICE >= len(handles)
            yield self._written_slice(
                part, 0 if last and marked else min(batch_bytes, WRITTEN_BYTES)
            ) or self._slice_of_columns(part)

    def _written_slice(self, handles: list[Handle], limit: int) -> Batch | None:
        """Return the frozen changes encoded; None when columns are needed or as fast."""
        known = None if limit <= 0 or len(handles) < WORTHWHILE else self._known_forms()
        if known is None:
            return None
        entries, forms = known
        written = _kernel.write_changes(
            (entries, self._dirty, self._frozen_deleted), handles, forms, limit
        )
        return None if written is None else EncodedBatch(written[0], len(handles), *written[1:])

    def _known_forms(self) -> tuple[dict[Any, Any], tuple[int, int, int]] | None:
        """Return the dict of entries and the kernel's numbers for its shape, keys and values.

        Return None when the kernel does not know one of them.
        """
        found, keys, values = self._entries(), self._codec.key_form, self._codec.value_form
        if _kernel is None or self._mutable or found is None or keys is None or values is None:
            return None
        entries, shape = found
        return entries, (shape, keys, values)

    def _entries(self) -> tuple[dict[Any, Any], int] | None:
        """Return the dict of entries and its shape; None for stores with their own row format."""
        return None

    def _slice_of_columns(self, handles: list[Handle]) -> Batch:
        keys = self._log_keys(handles)
        columns = None if self._mutable else self._frozen_columns(handles)
        try:
            contents: list[bytes | None] | None = (
                None if columns is None else [*self._codec.values(columns[0])]
            )
        except Exception:  # noqa: BLE001 - it comes again, with the name of the one that it was
            contents = None
        return (
            self._slow_slice(handles, keys)
            if columns is None or contents is None
            else Batch(keys, contents, columns[1])
        )

    def _frozen_columns(self, handles: list[Handle]) -> tuple[list[Any], list[int]] | None:
        """Return values and timestamps of the frozen changes; None unless all are entries."""
        values = self._frozen_values(handles)
        return (
            (list(map(_first, values)), list(map(_second, values)))
            if set(map(type, values)) == {tuple}
            else None
        )

    def _slow_slice(self, handles: list[Handle], keys: list[bytes]) -> Batch:
        contents: list[bytes | None] = []
        timestamps: list[int] = []
        for handle, value in zip(handles, self._frozen_values(handles), strict=True):
            if value is None or value is MISSING:
                contents.append(None)
                timestamps.append(self._frozen_deleted[handle])
            else:
                raw = self._raw(handle, value)
                contents.append(raw[TIME_BYTES:])
                timestamps.append(unpack_time(raw)[0])
        return Batch(keys, contents, timestamps)
