"""Records by the batch, in C. Where it could not be built its users have Python code that does the same."""

from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

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
