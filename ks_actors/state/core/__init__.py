"""The common parts of all kinds of stores."""

from ks_actors.state.core._closed import Closed
from ks_actors.state.core._codec import TIME_BYTES, Codec, pack_time, pack_times, unpack_time
from ks_actors.state.core._codec_with_headers import CodecWithHeaders
from ks_actors.state.core._engine import Engine, EngineRow
from ks_actors.state.core._entry import (
    Entry,
    EntryWithHeaders,
    TimeWithHeaders,
    entry_with,
    headers_of,
    no_record,
    with_value,
)
from ks_actors.state.core._forms import (
    AGGREGATION_FORM,
    HEADERS_FORM,
    PLAIN_FORM,
    TIMESTAMPED_FORM,
    AggregationWithHeaders,
    Form,
    Take,
    ValueAndTimestamp,
    ValueTimestampHeaders,
)
from ks_actors.state.core._instants import instant
from ks_actors.state.core._iterators import StoreIterator
from ks_actors.state.core._key_ranges import Bounds, after, within
from ks_actors.state.core._memory_budget import NO_LIMIT, MemoryBudget, TaskMemory
from ks_actors.state.core._reader import MANY, STEP, Reader, step
from ks_actors.state.core._row_scan import Row, Rows
from ks_actors.state.core._row_weight import RowWeight
from ks_actors.state.core._size_estimate import TEXTS, average, size, weigh
from ks_actors.state.core._store_for_tasks import StoreForTasks, StoreParts
from ks_actors.state.core._transactional import (
    BY_KEY,
    BY_KEY_AND_START,
    BY_START_AND_KEY,
    LOGGED_BYTES,
    MISSING,
    RECORD_BYTES,
    ROWS,
    SLICE,
    Transactional,
)

__all__ = [
    "AGGREGATION_FORM",
    "BY_KEY",
    "BY_KEY_AND_START",
    "BY_START_AND_KEY",
    "HEADERS_FORM",
    "LOGGED_BYTES",
    "MANY",
    "MISSING",
    "NO_LIMIT",
    "PLAIN_FORM",
    "RECORD_BYTES",
    "ROWS",
    "SLICE",
    "STEP",
    "TEXTS",
    "TIMESTAMPED_FORM",
    "TIME_BYTES",
    "AggregationWithHeaders",
    "Bounds",
    "Closed",
    "Codec",
    "CodecWithHeaders",
    "Engine",
    "EngineRow",
    "Entry",
    "EntryWithHeaders",
    "Form",
    "MemoryBudget",
    "Reader",
    "Row",
    "RowWeight",
    "Rows",
    "StoreForTasks",
    "StoreIterator",
    "StoreParts",
    "Take",
    "TaskMemory",
    "TimeWithHeaders",
    "Transactional",
    "ValueAndTimestamp",
    "ValueTimestampHeaders",
    "after",
    "average",
    "entry_with",
    "headers_of",
    "instant",
    "no_record",
    "pack_time",
    "pack_times",
    "size",
    "step",
    "unpack_time",
    "weigh",
    "with_value",
    "within",
]
