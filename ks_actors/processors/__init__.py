"""The Processor API, and the operators that the DSL is made of."""

from ks_actors.processors.api._api import Context, FixedKeyProcessor, FixedKeyProcessorContext, Processor, ProcessorContext, Punctuator
from ks_actors.processors.api._async_options import AsyncOptions, Order, Retry
from ks_actors.processors.api._operator import PunctuationType, RecordMetadata
from ks_actors.processors.api._record import FixedKeyRecord, Record
from ks_actors.processors.tables._transform import ValueTransformer

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
