"""The C kernel, which works on batches of records.

Where it was not built, its users have Python code that does the same.
"""

from array import array
from collections.abc import Callable
from typing import Any, Self, TypeVar

from typing_extensions import Buffer

_T = TypeVar("_T")

LOOKS_AHEAD: bool
"""Whether this build prefetches dict entries by their layout in memory.

This changes nothing but speed.
"""

def read_records(
    data: Buffer,
    at: int,
    count: int,
    base_offset: int,
    base_time: int,
    append_time: bool,
    with_offsets: bool,
    texts: int = ...,
    /,
) -> tuple[
    int,
    list[bytes | None],
    list[bytes | None],
    list[int],
    list[tuple[tuple[str, bytes | None], ...]] | None,
    list[int] | None,
]:
    """Read `count` uncompressed records of a record batch (message format v2) from position `at`.

    Returns the position after them, keys, values, and timestamps (ms: `base_time` plus the record's
    delta, or `base_time` itself with `append_time`). Then come headers (None when no record has
    any) and, if asked for, offsets. With 1 in `texts` keys are str, with 2 values. Raises
    ValueError for invalid records, and UnicodeDecodeError.
    """

def skip_records(data: Buffer, at: int, count: int, plain: bool = ..., /) -> int:
    """Return the position after the next `count` records. Raises ValueError for invalid ones.

    Only with `plain` all fields are looked at, and headers are invalid.
    """

def read_batches(
    data: Buffer,
    at: int,
    end: int,
    position: int,
    most_records: int,
    plain_attributes: int,
    most_memory: int,
    /,
) -> (
    tuple[
        int,
        list[bytes | None],
        list[bytes | None],
        list[int],
        list[tuple[tuple[str, bytes | None], ...]] | None,
        list[tuple[int, int]],
    ]
    | None
):
    """Read the record batches that begin between positions `at` and `end`, up to a special one.

    A batch is special if it is cut off, fails its checksum, begins below offset `position`, has
    offset gaps, attributes beyond `plain_attributes` or malformed records, or if the records exceed
    `most_records` or might take more than `most_memory` bytes. Also stops after 256 batches, or
    when several have 64 KiB.

    Returns the position after the batches, keys, values, timestamps (ms), headers (None when no
    record has any), and the offsets as runs: first offset and end of each. Returns None when the
    first batch is special. Raises ValueError if `at` is not in `data`.
    """

def behind_batches(data: Buffer, /) -> tuple[int, int, bool] | None:
    """Return the offset after the last whole record batch in `data`, and its leader epoch.

    The third value tells whether any whole batch is compressed. The batches have format v2 or
    later. Returns None if there is no such batch, or one that needs a closer look.
    """

def write_records(
    keys: list[bytes | None],
    values: list[bytes | None],
    timestamps: list[int],
    headers: list[tuple[tuple[str, bytes | None], ...]] | None,
    start: int,
    limit: int,
    header: int,
    /,
) -> tuple[bytearray, int, int, int]:
    """Write records from index `start` on as those of one record batch, after `header` zero bytes.

    It writes as many as fit into `limit` bytes, and at least one. Returns the bytes, the number of
    records, and the first and the highest timestamp. Raises TypeError for keys and values that are
    neither bytes nor None.
    """

def join_records(
    runs: list[Any], start: int, limit: int, header: int, /
) -> tuple[bytearray, int, int, int]:
    """Write records that are bytes already as `write_records` does, from index `start` on.

    A run is bytes, the start and the stop of the records there, their number, the base of their
    timestamps, and whether that is the timestamp of all. Raises ValueError for malformed records,
    and when there is no record at `start`.
    """

def write_changes(
    store: tuple[dict[Any, Any], dict[Any, Any], dict[Any, int]],
    handles: list[Any],
    forms: tuple[int, int, int],
    limit: int,
    /,
) -> tuple[bytes, int, int] | None:
    """Write a store's frozen changes as changelog records.

    These are the records of a record batch, without a header.

    `store` is three dicts: the entries, the later changes by handle, and the times (ms) of frozen
    deletions. An entry is a pair of value and timestamp (ms), or None for a deletion. The later
    changes take precedence over the entries.

    `forms` are three numbers. The first says how entries are addressed. 0: by key, and handles are
    keys. With 1 and 2 handles are pairs of key and start (ms); entries are by key, then start (1),
    or by start, then key (2). The record's key then ends with start and sequence number 0. The
    others are the forms of keys and values: bytes (0), str, encoded as UTF-8 (1), int, encoded in 8
    bytes (2).

    Returns the bytes, the first and the latest timestamp. Returns None when an entry is missing, a
    type is another one, or the bytes exceed `limit`.
    """

def engine_rows(
    store: tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]],
    handles: list[Any],
    forms: tuple[int, int, int, bool, int],
    prefix: bytes,
    /,
) -> list[tuple[bytes, bytes | None]] | None:
    """Return a store's committed changes as rows of its engine, in the order of their keys.

    `store` is the entries, and two dicts of changes by handle: the first one takes precedence over
    the second, and that over the entries. `forms` are the three numbers of `write_changes`, whether
    a row has the time, and how long a segment lasts (ms), 0 for a table.

    A row's key is the prefix, the segment's number (windows only), the key's bytes, and start and
    sequence number 0 (windows only). Its value is the time, if it has one, and the value's bytes.
    Each row has a value. Returns None when an entry is missing or deleted, or a type is another
    one.
    """

def crc32c(data: Buffer, by_hand: bool = ..., /) -> int:
    """Return the CRC-32C of bytes.

    `by_hand` avoids the processor's instruction, as on machines without it.
    """

def partitions(keys: list[bytes], count: int, /) -> list[int]:
    """Return each key's partition among `count`, as Kafka's default partitioner does.

    Raises TypeError for keys that are not bytes.
    """

def route_records(
    keys: list[Any],
    values: list[Any],
    timestamps: list[int],
    forms: tuple[int, int],
    count: int,
    limit: int,
    /,
) -> list[tuple[bytes, int, int, int] | None] | None:
    """Write records by the partition of their key among `count`, as Kafka's default one has it.

    `forms` are the forms of keys and values, as those of `write_changes`. Returns for each
    partition the records of a record batch without a header, their number, and the first and the
    highest timestamp; None for a partition without records. Returns None when a key is None, a type
    is another one, or the bytes of a partition exceed `limit`.
    """

def convert(function: Callable[..., Any], column: list[Any], /) -> list[Any]:
    """Return the function's result for each object; None stays None.

    Raises the function's errors.
    """

def encode_texts(column: list[Any], /) -> list[Any]:
    """Return the UTF-8 of each str; None stays None. Raises TypeError, UnicodeEncodeError."""

def decode_texts(column: list[Any], /) -> list[Any]:
    """Return the str of each UTF-8; None stays None. Raises TypeError, UnicodeDecodeError."""

def encode_longs(column: list[Any], /) -> list[Any]:
    """Return each int in 8 bytes, big-endian; None stays None. Raises TypeError, OverflowError."""

def decode_longs(column: list[Any], /) -> list[Any]:
    """Return the int of each 8 bytes, big-endian; None stays None. Raises TypeError, ValueError."""

def check_bytes(column: list[Any], /) -> list[Any]:
    """Return the column itself. Raises TypeError when it has anything but bytes and None."""

def absent(view: dict[Any, Any], keys: list[Any], start: int, /) -> list[Any]:
    """Return the plain keys from index `start` on that are not in `view`, each once, in order.

    Plain keys are str, bytes or int. Raises the errors of comparing keys.
    """

def entry_columns(
    view: dict[Any, Any], dirty: dict[Any, Any], keys: list[Any], /
) -> tuple[list[Any], list[int]] | None:
    """Return the values and the timestamps of entries: from `dirty`, or else from `view`.

    None when a key is in neither, or its entry is no pair. Raises the errors of comparing keys.
    """

def count_windows(
    store: tuple[dict[int, dict[Any, Any]], dict[Any, Any], dict[int, Any], object],
    keys: list[Any],
    timestamps: list[int],
    start: int,
    out: tuple[list[Any], list[tuple[int, int | None]], list[int], bool],
    numbers: tuple[int, int, int, int, int, int],
    /,
) -> tuple[int, int, int, int, int]:
    """Count records from index `start` on in adjacent windows, until one is not plain.

    `store` is four parts: the entries (count, latest timestamp) by start, then key; the undo log,
    by key and start, of entries before their first change; the known windows by start; and the undo
    value of a new entry. `out` gets for each record the window, (count, count before | None), and
    the timestamp of the new entry; its last part tells whether the count before is needed. It is
    None for a new entry. `numbers` are stream time, grace, window size, the latest start put, the
    retention, and the start from which all is in memory.

    A plain record has a key (str, bytes or int), and falls into one of the known windows. That
    window has data in the store, is open and not expired, and has nothing but an entry for the key.
    Returns the index of the record that it stopped at, stream time, the latest start, the number of
    keys that are new in their window, and the length of all keys that were noted.
    """

def windowed(kind: type[_T], keys: list[Any], windows: list[Any], /) -> list[_T]:
    """Return a pair of each key and window, of a class of tuples.

    Raises TypeError for other classes, those with attributes of their own, and those of which
    `tuple.__new__` cannot make objects.
    """

def window_values(
    dicts: dict[Any, dict[Any, Any]],
    dirty: dict[Any, Any],
    handles: list[tuple[Any, int]],
    by_start: bool,
    /,
) -> list[Any] | None:
    """Return the value of each pair of key and start: from `dirty`, or else from `dicts`.

    None when one is in neither. `dicts` are by key, then start, or the other way round with
    `by_start`.
    """

def expire_windows(tracks: dict[Any, dict[int, Any]], keys: list[Any], limit: int, /) -> int:
    """Remove the entries of some keys that start at `limit` or before, and dicts that get empty.

    Returns how many entries it removed. Starts and the limit may be any int.
    """

def window_keys(keys: list[Any], starts: list[int], sequences: list[int] | None, /) -> list[bytes]:
    """Return the bytes of each key (str or bytes), followed by start and sequence number.

    Start is an int64, the sequence number an int32 (0 by default), both big-endian. Raises
    TypeError for other keys, UnicodeEncodeError for invalid text, OverflowError for larger numbers.
    """

def add_places(
    index: dict[Any, int | list[int]],
    keys: list[Any],
    starts: array[int],
    base: int,
    numbers: list[int],
    /,
) -> list[int]:
    """Add the rows from place `base` on to `index`; `numbers` are their places.

    The index has for each key the place of its only row, or the places of all, by start. Equal keys
    in the column are replaced by the object of the first row. Returns the places of rows that start
    before others of their key: these are left out. `starts` are int64.
    """

def meet(
    index: dict[Any, int | list[int]],
    starts: array[int],
    values: list[Any],
    keys: list[Any],
    times: list[int],
    before: int,
    after: int,
    met: list[tuple[int, int, Any]],
    /,
) -> None:
    """Add the matches of each key to `met`: the key's index, and start and value of the row.

    Rows match from `before` before to `after` after the key's time. Times before 0 count as 0.
    `add_places` makes the `index`.
    """

def map_large(size: int, /) -> bool:
    """Let malloc map blocks of `size` bytes and more (4 KiB to 32 MiB) one by one.

    They go back to the operating system when they are freed. The setting is process-wide and
    permanent: glibc no longer adapts its threshold. Raises ValueError for other sizes. Returns
    whether it was possible, as it is with glibc.
    """

def trim_memory() -> bool:
    """Give freed memory back to the operating system; return whether there was any.

    Other threads run meanwhile.
    """

class Rows:
    """Rows of a window store with duplicates, packed into bytes.

    They have memory of their own, and become objects on access. Rows start (ms) less than 2³² after
    `base`. Keys are str with `text`, else bytes. Values are the same with `text_values`, or None: a
    row without a value is not found by its key.

    The rows of a key are in the order of starts, and of arrival for equal starts. A row's place is
    the number of rows that came before it.
    """

    def __new__(cls, base: int, text: bool, text_values: bool, /) -> Self: ...
    def __len__(self) -> int: ...
    def take(self, keys: list[Any], values: list[Any], /) -> bool:
        """Return whether all of these have the types to be added, and can be encoded."""

    def add(self, key: Any, start: int, sequence: int, value: Any, time: int, /) -> None:
        """Add a row. Raises TypeError, ValueError, UnicodeEncodeError."""

    def add_all(
        self, keys: list[Any], starts: list[int], sequences: list[int], values: list[Any], /
    ) -> None:
        """Add rows with their starts as times: all of them, or none when it raises."""

    def replace(self, place: int, value: Any, time: int, /) -> None:
        """Replace the value and time of a row; its key still finds it."""

    def cut(self, left: int, /) -> None:
        """Remove all rows but the first `left`; their keys still find these."""

    def steps(self) -> int:
        """Return the number of links followed or tried so far: the work to find rows."""

    def places(self, key: Any, first: int, last: int, /) -> list[int]:
        """Return the places of a key's rows that start from `first` to `last`, inclusive.

        The bounds may be any int, as may times in `meet`.
        """

    def entries(self, key: Any, first: int, last: int, /) -> list[tuple[int, tuple[Any, int]]]:
        """Return start, value and time of a key's rows that start from `first` to `last`."""

    def meet(
        self,
        keys: list[Any],
        times: list[int],
        before: int,
        after: int,
        limits: list[int] | None,
        met: list[tuple[int, int, Any]],
        /,
    ) -> None:
        """Do the same as `meet`, but leave out rows that start at a key's limit or before."""

    def column(self, which: int, first: int, last: int, /) -> list[Any]:
        """Return a column of rows `first` to before `last`, as far as there are any.

        Columns are keys (0), starts (1), sequence numbers (2), values (3), times (4), and the bytes
        of the values (5).
        """

    def names(self, first: int, last: int, /) -> list[bytes]:
        """Return the changelog keys of rows `first` to before `last`, like `window_keys`."""

    def write(
        self, first: int, last: int, limit: int, header: int, /
    ) -> tuple[bytearray, int, int, int]:
        """Write the changelog records of rows `first` to before `last` as `write_records` does.

        There must be at least one; `header` is at most 4096.
        """

class RestoredRows:
    """The restored rows of a changelog, the last one of each key.

    It does the same as `RestoredRows` of the state package, in memory of its own. An entry is a
    timestamp (int64, big-endian), followed by a value; None is a deletion.
    """

    def __len__(self) -> int: ...
    def __contains__(self, key: bytes, /) -> bool: ...
    def put(self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], /) -> None:
        """Put rows, one after the other.

        Raises TypeError for other types, and OverflowError; rows put until then stay.
        """

    def take_over(self, other: RestoredRows, /) -> None:
        """Move all rows of another one here."""

    def get(self, key: bytes, default: Any, /) -> Any:
        """Return the entry of a key, or `default`.

        Raises TypeError for keys that are not bytes, as `in` and `discard` do.
        """

    def discard(self, key: bytes, /) -> None:
        """Remove a row, if there is one."""

    def items(self) -> list[tuple[bytes, bytes | None]]:
        """Return keys and entries."""

    def arranged(self, count: int, /) -> bool:
        """Look at `count` more slots for rows to sort; return whether those were all."""

    def rows(self, count: int, prefix: bytes, cut: int, /) -> list[tuple[bytes, bytes | None]]:
        """Return the next rows in the order of their keys.

        Keys get the prefix, and entries lose their first `cut` bytes. Raises ValueError unless
        `arranged` has returned True and nothing but `written` has changed anything since.
        """

    def written(self, count: int, /) -> None:
        """Remove the first `count` rows that `rows` has returned."""

def count_up(
    view: dict[Any, Any],
    dirty: dict[Any, Any],
    keys: list[Any],
    values: list[Any],
    timestamps: list[int],
    start: int,
    changes: list[tuple[int, int | None]],
    times: list[int],
    with_old: bool,
    /,
) -> tuple[int, int]:
    """Count records from index `start` on in `view`, until one is not plain.

    `view` is the entries (count, latest timestamp) by key. A plain record has a value, and a key
    (str, bytes or int) that is in `view`. Its entry before the first change is noted in `dirty`.
    (count, count before | None) is added to `changes`, with None too where the entry has the least
    timestamp, -2**63: it stands for none. The timestamp of the new entry is added to `times`.
    Returns the index of the record that it stopped at, and the length of all keys that are new in
    `dirty`.
    """
