"""Records by the batch, in C. Where it could not be built its users have Python code that does the same."""

from array import array
from collections.abc import Callable
from typing import Any, Self, TypeVar

from typing_extensions import Buffer

_T = TypeVar("_T")

LOOKS_AHEAD: bool
"""Whether this build reads dicts by their layout in memory, to have the next keys in the processor's cache: it changes nothing but speed."""

def read_records(
    data: Buffer, at: int, count: int, base_offset: int, base_time: int, append_time: bool, with_offsets: bool, /
) -> tuple[int, list[bytes | None], list[bytes | None], list[int], list[tuple[tuple[str, bytes | None], ...]] | None, list[int] | None]:
    """Read `count` records of a record batch (message format v2) from position `at` of its uncompressed records on.

    Returns the position behind them, keys, values, timestamps (ms: `base_time` plus what each says, or `base_time` itself with `append_time`),
    headers (None when no record has any) and, if asked for, offsets. Raises ValueError for bytes that are no such records.
    """

def skip_records(data: Buffer, at: int, count: int, /) -> int:
    """Return the position behind the next `count` records. Raises ValueError for bytes that are no records."""

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
    """Write records from index `start` on as those of one record batch, behind `header` zero bytes.

    As many are written as fit into `limit` bytes, and one at least. Returns the bytes, how many records that are, and the first and the highest
    timestamp. Raises TypeError for what is neither bytes nor None.
    """

def write_changes(
    store: tuple[dict[Any, Any], dict[Any, Any], dict[Any, int]], handles: list[Any], forms: tuple[int, int, int], limit: int, /
) -> tuple[bytes, int, int] | None:
    """Write what is frozen of a store as the records of its changelog: those of a record batch, without anything before them.

    `store` is entries, what was noted since, and when (ms) what is frozen was deleted. An entry, a pair of value and timestamp (ms), or None for what
    is deleted, is what was noted under a handle, else that of the entries. `forms` are numbers. The first says where entries are: by key, where
    handles are keys (0); or, handles being pairs of key and start (ms), by key, then start (1), or by start, then key (2), and the record's key has
    start and sequence number 0 behind it. The others say what keys and values are: bytes (0), str, of which UTF-8 is made (1), int, of which 8 bytes
    are made (2).

    Returns the bytes, the first and the latest timestamp. None when something is not there, or not of these very types, or there are more bytes than
    `limit`.
    """

def engine_rows(
    store: tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]], handles: list[Any], forms: tuple[int, int, int, bool, int], prefix: bytes, /
) -> list[tuple[bytes, bytes]] | None:
    """Return what is committed of a store as rows of its engine, in the order of their keys.

    `store` is entries, and two dicts of what was noted: what the first one has under a handle counts, else the second's, else the entries'. `forms`
    are three numbers as `write_changes` takes them, whether a row holds the time, and how long a segment lasts (ms), 0 of a table. A row's key is the
    prefix, of windows the number of the segment, the key's bytes, and of windows start and sequence number 0; its value is the time, if it has one,
    and the value's bytes.

    None when something is not there, was deleted, or is not of these very types.
    """

def crc32c(data: Buffer, by_hand: bool = ..., /) -> int:
    """Return the CRC-32C of bytes; `by_hand` does without the processor's instruction, as is done where there is none."""

def partitions(keys: list[bytes], count: int, /) -> list[int]:
    """Return the partition of each key among `count`, as Kafka's default partitioner has it. Raises TypeError for what is not bytes."""

def scatter(numbers: list[int], count: int, columns: list[list[Any]], /) -> list[list[list[Any] | None]]:
    """Return for each column the list of what it has for each number below `count`, in order; None for numbers that do not occur."""

def convert(function: Callable[..., Any], column: list[Any], /) -> list[Any]:
    """Return what a function makes of each object; None stays None. Raises what the function raises."""

def encode_texts(column: list[Any], /) -> list[Any]:
    """Return the UTF-8 of each str; None stays None. Raises TypeError, UnicodeEncodeError."""

def decode_texts(column: list[Any], /) -> list[Any]:
    """Return the str of each UTF-8; None stays None. Raises TypeError, UnicodeDecodeError."""

def encode_longs(column: list[Any], /) -> list[Any]:
    """Return each int in 8 bytes, big-endian; None stays None. Raises TypeError, OverflowError."""

def decode_longs(column: list[Any], /) -> list[Any]:
    """Return the int of each 8 bytes, big-endian; None stays None. Raises TypeError, ValueError."""

def check_bytes(column: list[Any], /) -> list[Any]:
    """Return the column itself. Raises TypeError when there is anything but bytes and None in it."""

def absent(view: dict[Any, Any], keys: list[Any], start: int, /) -> list[Any]:
    """Return the plain keys (str, bytes or int) from index `start` on that are not in `view`, each once, as they come.

    Raises what comparing a key raises.
    """

def entry_columns(view: dict[Any, Any], dirty: dict[Any, Any], keys: list[Any], /) -> tuple[list[Any], list[int]] | None:
    """Return the values and the timestamps of entries: those that `dirty` has, the others from `view`.

    None when a key is in neither, or what is there is no pair. Raises what comparing a key raises.
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
    """Count records from index `start` on in windows that lie side by side, until one is not plain.

    `store` is what each window has by start, then key: entries (count, latest timestamp); where the entry of a window before its first change is
    noted, by key and start; the windows that there are by start; and what is noted of one that is new. `out` takes for each record the window,
    (count, count before | None), and the timestamp of the new entry; then whether the count before is wanted. `numbers` are stream time and grace,
    how long windows are, the latest start put and the retention, and from which start on all is in memory.

    A plain record has a key (str, bytes or int), and falls into one of the `windows`, which the store has something of, is open, has not expired,
    and has nothing but an entry for the key. Returns the index of the record that it stopped at, stream time, the latest start, how many keys are
    new in their window, and the length of all keys that were noted.
    """

def windowed(kind: type[_T], keys: list[Any], windows: list[Any], /) -> list[_T]:
    """Return a pair of each key and window, of a class of tuples.

    Raises TypeError for other classes, those with attributes of their own, and those that `tuple.__new__` makes no object of.
    """

def window_values(dicts: dict[Any, dict[Any, Any]], dirty: dict[Any, Any], handles: list[tuple[Any, int]], by_start: bool, /) -> list[Any] | None:
    """Return for each pair of key and start what `dirty` has noted of it, else what it has in `dicts`; None when there is nothing of one.

    `dicts` are by key, then start, or the other way round when they are `by_start`.
    """

def expire_windows(tracks: dict[Any, dict[int, Any]], keys: list[Any], limit: int, /) -> int:
    """Take out of the dicts of some keys what is at `limit` or before, and the dicts that are empty then; return how much that was.

    Starts and the limit may be any int.
    """

def window_keys(keys: list[Any], starts: list[int], sequences: list[int] | None, /) -> list[bytes]:
    """Return the bytes of each key (str or bytes), with start (int64) and sequence number (int32, 0 by default) behind them, big-endian.

    Raises TypeError for other keys, UnicodeEncodeError for text that is none, OverflowError for larger numbers.
    """

def add_places(index: dict[Any, int | list[int]], keys: list[Any], starts: array[int], base: int, numbers: list[int], /) -> list[int]:
    """Note in `index` the rows from place `base` on, which `numbers` are: for each key the place of its only row, or those of all, by start.

    Of equal keys the object of the first row is put into the column. Returns the places of rows that start before others of their key: these are
    left out. `starts` are int64.
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
    """Add to `met`, for each key, which one it is, and start and value of each row from `before` before to `after` after its time.

    Times before 0 are taken for 0. `index` is what `add_places` makes.
    """

def map_large(size: int, /) -> bool:
    """Have malloc get blocks of so many bytes and more (4 KiB to 32 MiB) from the operating system one by one, and give them back when they are free.

    It is for the whole process, and for good: glibc does not learn any more what is large. Returns whether that was possible: with glibc it is.
    """

def trim_memory() -> bool:
    """Give memory that was freed back to the operating system; return whether that could be done with any. Others run meanwhile."""

class Rows:
    """Rows of a window store with duplicates, packed: what they hold is bytes in memory of their own, and becomes objects when it is asked for.

    Rows start (ms) less than 2³² after `base`. Keys are str with `text`, else bytes; so are values with `text_values`, or None: such a row is not
    found by its key.
    Whatever is asked for of a key is in the order of starts, and of those of one start as they came. A row's place is how many came before it.
    """

    def __new__(cls, base: int, text: bool, text_values: bool, /) -> Self: ...
    def __len__(self) -> int: ...
    def take(self, keys: list[Any], values: list[Any], /) -> bool:
        """Return whether all of these can be added, as for their types, and can be encoded."""

    def add(self, key: Any, start: int, sequence: int, value: Any, time: int, /) -> None:
        """Add a row. Raises TypeError, ValueError, UnicodeEncodeError."""

    def add_all(self, keys: list[Any], starts: list[int], sequences: list[int], values: list[Any], /) -> None:
        """Add rows with their starts as times: all of them, or none when it raises."""

    def replace(self, place: int, value: Any, time: int, /) -> None:
        """Put another value and time into the place of those of a row, which is found by its key as before."""

    def cut(self, left: int, /) -> None:
        """Take out all rows but the first `left`; those that stay are found as before."""

    def steps(self) -> int:
        """Return how many links from row to row were followed, or tried, so far: how much work it was to find rows."""

    def places(self, key: Any, first: int, last: int, /) -> list[int]:
        """Return the places of the rows of a key that start from `first` to `last`, both included; these may be any int, as may times in `meet`."""

    def entries(self, key: Any, first: int, last: int, /) -> list[tuple[int, tuple[Any, int]]]:
        """Return start, value and time of those."""

    def meet(self, keys: list[Any], times: list[int], before: int, after: int, limits: list[int] | None, met: list[tuple[int, int, Any]], /) -> None:
        """Do what the function `meet` does, but leave out what starts at a key's limit or before."""

    def column(self, which: int, first: int, last: int, /) -> list[Any]:
        """Return what rows `first` to before `last`, as far as there are any, have in a column.

        Columns are keys (0), starts (1), sequence numbers (2), values (3), times (4), and the bytes of the values (5).
        """

    def names(self, first: int, last: int, /) -> list[bytes]:
        """Return the keys of such rows in a changelog, as `window_keys` makes them."""

    def write(self, first: int, last: int, limit: int, header: int, /) -> tuple[bytearray, int, int, int]:
        """Do for the records of such rows in a changelog, one at least, what `write_records` does; `header` is no more than 4096."""

class RestoredRows:
    """Rows of a changelog that were restored, the last one of each key: what `RestoredRows` of the state package does, in memory of its own.

    An entry is a timestamp (int64, big-endian) and a value, one behind the other; None is a row that deletes.
    """

    def __len__(self) -> int: ...
    def __contains__(self, key: bytes, /) -> bool: ...
    def put(self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], /) -> None:
        """Put rows, one after the other. Raises TypeError for other types, OverflowError; what was put until then stays."""

    def take_over(self, other: RestoredRows, /) -> None:
        """Put all rows of another one, which is empty then."""

    def get(self, key: bytes, default: Any, /) -> Any:
        """Return the entry of a key, or `default`. Raises TypeError for what is no bytes, as `in` and `discard` do."""

    def discard(self, key: bytes, /) -> None:
        """Take out a row, if there is one."""

    def items(self) -> list[tuple[bytes, bytes | None]]:
        """Return keys and entries."""

    def arranged(self, count: int, /) -> bool:
        """Look at so many more places for rows, to bring these into order; return whether that were all."""

    def rows(self, count: int, prefix: bytes, cut: int, /) -> list[tuple[bytes, bytes | None]]:
        """Return the next rows in the order of their keys, with a prefix in front, and without the first bytes of their entries.

        Once `arranged` was True, and as long as nothing but `written` has changed anything; else it raises ValueError.
        """

    def written(self, count: int, /) -> None:
        """Take out so many rows that `rows` has returned."""

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
    """Count records from index `start` on in `view`, the entries (count, latest timestamp) by key, until one is not plain.

    A plain one has a value, and a key (str, bytes or int) that is in `view`. Its entry before the first change is noted in `dirty`; (count, count
    before | None) is added to `changes`, the timestamp of the new entry to `times`. Returns the index of the record that it stopped at, and the
    length of all keys that are new in `dirty`.
    """
