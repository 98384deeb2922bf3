"""The Processor API, and the operators that the DSL is made of."""

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
