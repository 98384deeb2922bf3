"""Values that all parts exchange: batches, task ids, windows."""

from ks_actors.records._batch import Batch, Headers
from ks_actors.records._custom_windows import CustomWindows, window_at
from ks_actors.records._encoded_batch import (
    TEXT_KEYS,
    TEXT_VALUES,
    EncodedBatch,
    FetchedBatch,
    Run,
)
from ks_actors.records._header_bytes import (
    NO_HEADERS,
    headers_end,
    pack_headers,
    unpack_headers,
)
from ks_actors.records._lazy_batch import WORTHWHILE, LazyBatch, mean_bytes
from ks_actors.records._packed_batch import PackedBatch
from ks_actors.records._partitioner import Partitioner, partition, warm_up
from ks_actors.records._partitioner import partition as partition_of
from ks_actors.records._task_id import TaskId
from ks_actors.records._topic_partition import TopicPartition
from ks_actors.records._value_hash import murmur3_128
from ks_actors.records._versioned import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    VersionedRecord,
)
from ks_actors.records._windowed import Window, Windowed

__all__ = [
    "NO_HEADERS",
    "PUT_RETURN_CODE_NOT_PUT",
    "PUT_RETURN_CODE_VALID_TO_UNDEFINED",
    "TEXT_KEYS",
    "TEXT_VALUES",
    "WORTHWHILE",
    "Batch",
    "CustomWindows",
    "EncodedBatch",
    "FetchedBatch",
    "Headers",
    "LazyBatch",
    "PackedBatch",
    "Partitioner",
    "Run",
    "TaskId",
    "TopicPartition",
    "VersionedRecord",
    "Window",
    "Windowed",
    "headers_end",
    "mean_bytes",
    "murmur3_128",
    "pack_headers",
    "partition",
    "partition_of",
    "unpack_headers",
    "warm_up",
    "window_at",
]
