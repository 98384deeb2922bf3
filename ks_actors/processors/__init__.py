"""The Processor API, and the operators of the DSL."""

from ks_actors.processors.api import (
    AsyncOptions,
    Context,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    Order,
    Processor,
    ProcessorContext,
    PunctuationType,
    Punctuator,
    Record,
    RecordMetadata,
    Retry,
)
from ks_actors.processors.tables import ValueTransformer

__all__ = [
    "AsyncOptions",
    "Context",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "Order",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "Punctuator",
    "Record",
    "RecordMetadata",
    "Retry",
    "ValueTransformer",
]
