"""The Processor API and the contract of operators."""

from ks_actors.processors.api._adapter import AnySupplier, ProcessorOperator, call_time
from ks_actors.processors.api._api import (
    Context,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    Processor,
    ProcessorContext,
    Punctuator,
)
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
    takes_key,
)
from ks_actors.processors.api._async_options import (
    AsyncArguments,
    AsyncOptions,
    Order,
    Retry,
    async_options,
    is_async,
    options_of,
)
from ks_actors.processors.api._closing import forward_closed, held_back, unreadable
from ks_actors.processors.api._idle import IdleNode
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
from ks_actors.processors.api._wrapped_operator import WrappedOperator, checked, wrapped_node
from ks_actors.processors.api._wrapper import (
    AsyncProcess,
    BatchProcess,
    ProcessorWrapper,
    WrappedNode,
)

__all__ = [
    "AnySupplier",
    "AsyncArguments",
    "AsyncBound",
    "AsyncOperator",
    "AsyncOptions",
    "AsyncProcess",
    "BatchProcess",
    "Bound",
    "Cache",
    "Clock",
    "Context",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "Gone",
    "HeldRows",
    "IdleNode",
    "NodeContext",
    "Operator",
    "Order",
    "Origin",
    "Process",
    "ProcessBatch",
    "Processor",
    "ProcessorContext",
    "ProcessorOperator",
    "ProcessorWrapper",
    "PunctuationType",
    "Punctuator",
    "Record",
    "RecordMetadata",
    "Retry",
    "WrappedNode",
    "WrappedOperator",
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
    "checked",
    "forward_closed",
    "held_back",
    "is_async",
    "keep",
    "never_alone",
    "options_of",
    "takes_key",
    "too_early",
    "unreadable",
    "wrapped_node",
]
