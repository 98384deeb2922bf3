"""What a store has changed since the last commit, and how that becomes records of its changelog.

A store keeps one view of what is in memory, the latest, uncommitted puts included: so a read is one look-up. What undoes the puts is noted beside it:

    _dirty    by key, the value before the first put of this transaction      put: note it, change the view
    _frozen   the same of the transaction that is being committed             freeze: dirty becomes frozen, O(1)

So what was frozen under a key is what dirty says, else the view.
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
"""Nothing is known in memory: not even that there is nothing."""

SLICE: Final = 1000
"""Records of the changelog that are made in one go."""

BY_KEY, BY_KEY_AND_START, BY_START_AND_KEY = range(3)
"""Shapes of dicts with entries, as `write_changes` numbers them."""

WRITTEN_BYTES: Final = 128 << 10
"""What so many records may take to be written at a stroke: columns share large values with the store."""

RECORD_BYTES: Final = 300
"""Heap that an uncommitted record takes besides the bytes of key and value: measured, the value that it replaces included."""

LOGGED_BYTES: Final = 32
"""What a record in a changelog takes besides key and value."""

_first: Final = itemgetter(0)
_second: Final = itemgetter(1)

Handle = TypeVar("Handle")
"""What a change is noted under: a key, or a key and a window."""


class UndoLog(ABC, Measured, Generic[Handle]):
    """What is uncommitted of one store's data. What is public here is for TaskStores alone."""

    def __init__(self, codec: Codec, record_time: Callable[[], int]) -> None:
        self.name: str = codec.name
        self._codec: Codec = codec
        self._time: Callable[[], int] = record_time
        self._mutable: bool = codec.mutable
        self._dirty: dict[Handle, Any] = {}
        self._frozen: dict[Handle, Any] = {}
        self._deleted: dict[Handle, int] = {}
        self._frozen_deleted: dict[Handle, int] = {}
        self._typical: int = 0  # bytes of a key and a value, where they are not counted one by one
        self._size: int = 0  # of those that are
        self._frozen_size: int = 0

    @abstractmethod
    def _now(self, handle: Handle) -> Any:
        """Return the view's value: an entry, its bytes, None, or MISSING."""

    @abstractmethod
    def _put_back(self, handle: Handle, value: Any) -> None:
        """Set the view to a value that `_now` returned once."""

    @abstractmethod
    def _frozen_values(self, handles: list[Handle]) -> list[Any]:
        """Return the values that were frozen, as `_frozen_value` does for one."""

    @abstractmethod
    def _log_keys(self, handles: list[Handle]) -> list[bytes]:
        """Return the keys of the changes' records in the changelog."""

    def uncommitted_bytes(self) -> int:
        """Return about how much memory the open transaction takes, in O(1)."""
        return len(self._dirty) * (RECORD_BYTES + self._typical) + self._size

    def freeze(self) -> None:
        """Begin a new transaction; the one that was open is being committed."""
        self._frozen_size, self._size = len(self._dirty) * (LOGGED_BYTES + self._typical) + self._size, 0
        self._frozen, self._dirty = self._dirty, {}
        self._frozen_deleted, self._deleted = self._deleted, {}

    def _frozen_value(self, handle: Handle) -> Any:
        dirty = self._dirty
        return dirty[handle] if handle in dirty else self._now(handle)

    def _raw(self, handle: Handle, value: Any) -> bytes:
        """Return the bytes of an entry that may be encoded already; raises SerializationError."""
        return value if type(value) is bytes else self._codec.written(handle, value)

    # The changelog.

    def changelog(self, *, batch_bytes: int = 0, marked: bool = False) -> Iterator[Batch]:
        """Return what is frozen, the last value of each key, in slices.

        A log that writes so many bytes at most as one gets slices that are written, where that can be done at a stroke; others get columns, and so
        does who is to mark the last record.
        """
        handles = list(self._frozen)
        for start in range(0, len(handles), SLICE):
            part = handles[start : start + SLICE]
            last = start + SLICE >= len(handles)
            yield self._written_slice(part, 0 if last and marked else min(batch_bytes, WRITTEN_BYTES)) or self._slice_of_columns(part)

    def _written_slice(self, handles: list[Handle], limit: int) -> Batch | None:
        """Return what is frozen as it is to be written; None when that has to be made of columns, or is as well."""
        known = None if limit <= 0 or len(handles) < WORTHWHILE else self._known_forms()
        if known is None:
            return None
        entries, forms = known
        written = _kernel.write_changes((entries, self._dirty, self._frozen_deleted), handles, forms, limit)
        return None if written is None else EncodedBatch(written[0], len(handles), *written[1:])

    def _known_forms(self) -> tuple[dict[Any, Any], tuple[int, int, int]] | None:
        """Return the dict that entries are in, with the forms of it, keys and values as the kernel knows them; None when it does not."""
        found, keys, values = self._entries(), self._codec.key_form, self._codec.value_form
        if _kernel is None or self._mutable or found is None or keys is None or values is None:
            return None
        entries, shape = found
        return entries, (shape, keys, values)

    def _entries(self) -> tuple[dict[Any, Any], int] | None:
        """Return the dict that entries are in, and its shape; None when they are written in a form of their own."""
        return None

    def _slice_of_columns(self, handles: list[Handle]) -> Batch:
        keys = self._log_keys(handles)
        columns = None if self._mutable else self._frozen_columns(handles)
        try:
            contents: list[bytes | None] | None = None if columns is None else [*self._codec.values(columns[0])]
        except Exception:  # noqa: BLE001 - it comes again, with the name of the one that it was
            contents = None
        return self._slow_slice(handles, keys) if columns is None or contents is None else Batch(keys, contents, columns[1])

    def _frozen_columns(self, handles: list[Handle]) -> tuple[list[Any], list[int]] | None:
        """Return values and timestamps of what is frozen; None when not all are entries."""
        values = self._frozen_values(handles)
        return (list(map(_first, values)), list(map(_second, values))) if set(map(type, values)) == {tuple} else None

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
