"""The Processor API and the contract of operators."""

from ks_actors.processors.api._adapter import AnySupplier, ProcessorOperator, call_time
from ks_actors.processors.api._api import Context, FixedKeyProcessor, FixedKeyProcessorContext, Processor, ProcessorContext, Punctuator
from ks_actors.processors.api._argument_checks import (
    check_configs,
    check_flag,
    check_function,
    check_kind,
    check_names,
    check_one_of,
    check_options,
    check_serde,
    check_supplier,
    check_whole,
)
from ks_actors.processors.api._async_options import AsyncArguments, AsyncOptions, Order, Retry, async_options, is_async, options_of
from ks_actors.processors.api._closing import forward_closed, held_back, unreadable
from ks_actors.processors.api._operator import (
    AsyncBound,
    AsyncOperator,
    Bound,
    NodeContext,
    Operator,
    Process,
    ProcessBatch,
    PunctuationType,
    RecordMetadata,
    never_alone,
    too_early,
)
from ks_actors.processors.api._record import FixedKeyRecord, Record
from ks_actors.processors.api._record_origins import Origin
from ks_actors.processors.api._stream_clock import Clock, keep
from ks_actors.processors.api._update_cache import Cache, Gone, HeldRows

__all__ = [
    "AnySupplier",
    "AsyncArguments",
    "AsyncBound",
    "AsyncOperator",
    "AsyncOptions",
    "Bound",
    "Cache",
    "Clock",
    "Context",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "Gone",
    "HeldRows",
    "NodeContext",
    "Operator",
    "Order",
    "Origin",
    "Process",
    "ProcessBatch",
    "Processor",
    "ProcessorContext",
    "ProcessorOperator",
    "PunctuationType",
    "Punctuator",
    "Record",
    "RecordMetadata",
    "Retry",
    "async_options",
    "call_time",
    "check_configs",
    "check_flag",
    "check_function",
    "check_kind",
    "check_names",
    "check_one_of",
    "check_options",
    "check_serde",
    "check_supplier",
    "check_whole",
    "forward_closed",
    "held_back",
    "is_async",
    "keep",
    "never_alone",
    "options_of",
    "too_early",
    "unreadable",
]
