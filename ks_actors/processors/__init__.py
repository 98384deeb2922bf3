"""The Processor API, and the operators of the DSL."""

from typing import TYPE_CHECKING

from ks_actors.system import taken_from

if TYPE_CHECKING:
    from ks_actors.processors.api import (
        AsyncOptions,
        AsyncProcess,
        BatchProcess,
        Context,
        FixedKeyProcessor,
        FixedKeyProcessorContext,
        FixedKeyRecord,
        Order,
        Process,
        Processor,
        ProcessorContext,
        ProcessorWrapper,
        PunctuationType,
        Punctuator,
        Record,
        RecordMetadata,
        Retry,
        WrappedNode,
    )
    from ks_actors.processors.tables import ValueTransformer
else:
    __getattr__ = taken_from(__name__, ("api", "tables"))

__all__ = [
    "AsyncOptions",
    "AsyncProcess",
    "BatchProcess",
    "Context",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "Order",
    "Process",
    "Processor",
    "ProcessorContext",
    "ProcessorWrapper",
    "PunctuationType",
    "Punctuator",
    "Record",
    "RecordMetadata",
    "Retry",
    "ValueTransformer",
    "WrappedNode",
]
