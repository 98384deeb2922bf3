"""The contracts between operators and stores, one for each kind of store.

An operator names the kind of store where it takes the store from its context. A store's entry is a
plain tuple of value and timestamp (ms); None is no entry, and deletes. Calls belong to the task's
own turn. They raise SerializationError for a key or a value that cannot be written or read, and
then change nothing. They raise StoreClosed after the end of the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors._errors import SerializationError
    from ks_actors.state.core import Entry

    Rows = Iterable[tuple[Any, Any]]
    Met = tuple[int, int, Any]
    """The index of the probing record, then the start and value of the matching row."""


class StoreForOperators(Protocol):
    """A store of any kind."""

    @property
    def name(self) -> str:
        """The store's name."""
        ...

    @property
    def mutable(self) -> bool:
        """Whether values are mutable, so that each read makes a new object."""
        ...


class CountUp(Protocol):
    """Count many records of a key-value store, up to the first that is not plain.

    See `_kernel.pyi`.
    """

    def __call__(
        self,
        keys: list[Any],
        values: list[Any],
        timestamps: list[int],
        start: int,
        changes: list[Any],
        times: list[int],
        *,
        with_old: bool,
    ) -> int:
        """Return the index of the first record that was not counted."""
        ...


class KeyValueForOperators(StoreForOperators, Protocol):
    """A timestamped key-value store: entries by key."""

    @property
    def count_up(self) -> CountUp | None:
        """The function that counts many records at once; None without one."""
        ...

    @property
    def bound(self) -> int:
        """Whole numbers from `-bound` to below `bound` are read back unchanged; 0: no number is."""
        ...

    @property
    def uncommitted(self) -> dict[Any, Any]:
        """The old entries of all keys put since the last commit, by first put.

        A value that is not a tuple means no old entry. Each commit begins a new dict.
        """
        ...

    def get_entry(self, key: Any, /) -> Entry | None:
        """Return the entry of a key."""
        ...

    def put_entry(self, key: Any, entry: Entry | None, /) -> None:
        """Set the entry of a key; None deletes it."""
        ...

    def value_bytes(self, key: Any, /) -> bytes | None:
        """Return the bytes of a key's value as they were written, maybe by an earlier version.

        A store `as_written` has them; others write the value again. None without a value.
        """
        ...

    def put_entries(self, entries: dict[Any, Entry], fresh: Iterable[Any]) -> None:
        """Put many entries, no deletes.

        All keys except the `fresh` ones were put in this transaction before. The values are
        admitted already.
        """
        ...

    def check_key(self, key: Any) -> None:
        """Raise SerializationError when a key cannot be written."""
        ...

    def admit(self, key: Any, value: Any) -> Any:
        """Return an immutable value as reads after its put return it."""
        ...


class BufferForOperators(StoreForOperators, Protocol):
    """A key-value store in which a node holds back records, by key."""

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""
        ...

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; None deletes it."""
        ...

    def all_there_is(self) -> Rows:
        """Iterate over keys and values in byte order.

        An unreadable value is replaced by its SerializationError.
        """
        ...

    def key_bytes(self, key: Any) -> bytes:
        """Return the bytes of a key, by which keys are ordered."""
        ...

    def index(self, key: Any) -> Any:
        """Return the dict key of a key: the key if equal keys have equal bytes, else its bytes."""
        ...

    def get_at(self, index: Any) -> Any:
        """Return the value of a dict key, or None."""
        ...

    def put_at(self, index: Any, value: Any) -> None:
        """Set the value of a dict key; None deletes it."""
        ...

    def own_key(self, key: Any, index: Any = None) -> tuple[bytes, Any]:
        """Return the bytes of a key, and the key itself, copied if it is mutable.

        `index` is its dict key, if known.
        """
        ...

    def index_of(self, encoded: bytes, key: Any) -> Any:
        """Return the dict key of what `own_key` returned."""
        ...

    def entry_bytes(self, key: Any, value: Any) -> int:
        """Return the written size of a key and its value (bytes), time included."""
        ...


class CountWindows(Protocol):
    """Count many records of a window store, up to the first that is not plain.

    See `count_windows` in `_kernel.pyi`.
    """

    def __call__(
        self,
        windows: dict[int, Any],
        keys: list[Any],
        timestamps: list[int],
        first: int,
        out: tuple[list[Any], list[Any], list[int], bool],
        clock: tuple[int, int, int],
    ) -> tuple[int, int]:
        """Return the index of the first record that was not counted, and stream time."""
        ...


class WindowsForOperators(StoreForOperators, Protocol):
    """A timestamped window store: entries by key and window start (ms).

    A put of a window that has expired is dropped and counted as late.
    """

    @property
    def counts(self) -> bool:
        """Whether `count_up` is supported."""
        ...

    @property
    def count_up(self) -> CountWindows | None:
        """The function that counts many records at once; None without one."""
        ...

    @property
    def bound(self) -> int:
        """Whole numbers from `-bound` to below `bound` are read back unchanged; 0: no number is."""
        ...

    def get_entry(self, key: Any, start: int) -> Entry | None:
        """Return the entry of one window."""
        ...

    def put_entry(self, key: Any, start: int, entry: Entry | None) -> None:
        """Set the entry of one window; None deletes it."""
        ...

    def fetch_entries(self, key: Any, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return start and entry of the windows of `key` in a time range, in time order.

        They start from `time_from` to `time_to`, both included.
        """
        ...

    def fetch_all_entries(self, time_from: int, time_to: int) -> list[tuple[Any, int, Entry]]:
        """Return key, start and entry of all windows in a time range.

        They start from `time_from` to `time_to`, and are sorted by start, then key bytes.
        """
        ...

    def closed_entries(
        self, time_from: int, time_to: int
    ) -> list[tuple[Any, int, Entry | SerializationError]]:
        """Return the same as `fetch_all_entries`, but a SerializationError for an unreadable entry.

        An unreadable key is None.
        """
        ...

    def check_key(self, key: Any) -> None:
        """Raise SerializationError when a key cannot be written."""
        ...

    def admit(self, key: Any, value: Any) -> Any:
        """Return an immutable value as reads after its put return it."""
        ...


class JoinWindowsForOperators(StoreForOperators, Protocol):
    """A window store with duplicates: the records of one side of a stream-stream join.

    Rows are by key and start (ms), as many as were put. Parameters called `indexes` are dict keys:
    the keys themselves or their bytes.
    """

    @property
    def observed(self) -> int:
        """The latest put start, -1 before the first."""
        ...

    @property
    def run_ms(self) -> int:
        """The largest distance (ms) between row starts in one `put_run`."""
        ...

    def put_entry(self, key: Any, start: int, entry: Entry | None) -> None:
        """Add an entry; its value is in the form that `kept` returns."""
        ...

    def kept(self, key: Any, value: Any) -> Any:
        """Return a value in the form in which the store keeps it."""
        ...

    def fetch_entries(self, key: Any, time_from: int, time_to: int) -> list[tuple[int, Entry]]:
        """Return start and entry of the rows of `key` in a time range.

        The rows start from `time_from` to `time_to`, both included. They are in time order; rows of
        the same time are in the order of puts.
        """
        ...

    def indexes(self, keys: list[Any]) -> list[Any]:
        """Return the dict keys of keys; raises any error of the key serde."""
        ...

    def takes(self, indexes: list[Any], starts: list[int], values: list[Any]) -> list[Any] | None:
        """Return the values of rows in the form in which the store keeps them.

        Return None when the rows cannot be put as a batch, or their matches may be on disk.
        """
        ...

    def put_run(self, indexes: list[Any], starts: list[int], values: list[Any]) -> None:
        """Put rows with their starts as times; the values are in the form of `takes`."""
        ...

    def read(self, kept: Any) -> Any:
        """Return a row's value, given in the form of `takes`; a mutable value is a new object."""
        ...

    def limit_after(self, last: int) -> int:
        """Return the latest expired start after a put of a row that starts at `last`."""
        ...

    def meet(
        self,
        indexes: list[Any],
        times: list[int],
        before: int,
        after: int,
        limits: list[int] | None,
    ) -> list[Met]:
        """Return as matches the rows of each key in a window around that key's time.

        A window is from `before` ms before to `after` ms after the time. `limits` has each probe's
        latest expired start; it is None if no expired row is that near.
        """
        ...


class SessionsForOperators(StoreForOperators, Protocol):
    """A session store: entries by key and session, from `start` to `end` (ms), both included."""

    def get_entry(self, key: Any, start: int, end: int) -> Entry | None:
        """Return the entry of one session."""
        ...

    def put_entry(self, key: Any, start: int, end: int, entry: Any) -> None:
        """Set the entry of one session, which may be `prepared`; None deletes it.

        The put is dropped and counted as late when the session has expired.
        """
        ...

    def prepared(self, key: Any, entry: Any) -> Any:
        """Return an entry in the form that `put_entry` keeps."""
        ...

    def remove_entry(self, key: Any, start: int, end: int) -> None:
        """Delete one session; the delete is never counted as late."""
        ...

    def find_entries(
        self, key: Any, earliest_end: int, latest_start: int
    ) -> list[tuple[int, int, Entry]]:
        """Return start, end and entry of the sessions of `key` that overlap with a span."""
        ...

    def ended_sessions(self, earliest_end: int, latest_end: int) -> list[tuple[Any, int, int]]:
        """Return key, start and end of the sessions that end in a time range, sorted by end.

        The aggregates need not be readable.
        """
        ...

    def end_order(self, key: Any, start: int, end: int) -> tuple[Any, Any, Any]:
        """Return the sort key of a session in `ended_sessions`."""
        ...

    def own_key(self, key: Any) -> Any:
        """Return a key, copied if it is mutable."""
        ...


class VersionsForOperators(StoreForOperators, Protocol):
    """A versioned store: the values of each key over time (KIP-889)."""

    def latest(self, key: Any) -> Entry | None:
        """Return the latest value of a key and its time; None if it was deleted."""
        ...

    def as_of(self, key: Any, time: int) -> tuple[Entry, int | None] | None:
        """Return the version of a key that was valid at `time` (ms), and the end of its validity.

        Return None if there was none, or if the time is beyond the history retention.
        """
        ...

    def value_bytes(self, key: Any, /) -> bytes | None:
        """Return the bytes of the latest value of a key as they were written."""
        ...

    def put_version(self, key: Any, value: Any, time: int) -> int:
        """Set the value of a key from `time` (ms) on; return the end of its validity.

        That is a time, PUT_RETURN_CODE_VALID_TO_UNDEFINED or PUT_RETURN_CODE_NOT_PUT.
        """
        ...
