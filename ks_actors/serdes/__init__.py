"""Serdes: conversion of keys and values to bytes and back.

Serdes with names in capitals use the formats of the Java serdes with these names; `json` and
`msgpack` are typed; `Serde.of` makes one from two functions. A `HeaderSerde` takes the record's
headers, too.
"""

from __future__ import annotations

import typing as _typing

from ks_actors import _hints
from ks_actors.serdes._arrow import arrow
from ks_actors.serdes._as_read import AsRead as AsRead
from ks_actors.serdes._as_read import of_serde as of_serde
from ks_actors.serdes._awaited import Needs as Needs
from ks_actors.serdes._awaited import NeedsToRead as NeedsToRead
from ks_actors.serdes._awaited import collected as collected
from ks_actors.serdes._awaited import collecting as collecting
from ks_actors.serdes._awaited import needs_to_write as needs_to_write
from ks_actors.serdes._checked import checked_serializer as checked_serializer
from ks_actors.serdes._checked import tell_of_varying as tell_of_varying
from ks_actors.serdes._cloud_events import CloudEvent, cloud_events
from ks_actors.serdes._columns import for_column as for_column
from ks_actors.serdes._columns import has_form as has_form
from ks_actors.serdes._compatible import reads as reads
from ks_actors.serdes._defaults import is_complete as is_complete
from ks_actors.serdes._defaults import with_default as with_default
from ks_actors.serdes._defaults import wraps_key as wraps_key
from ks_actors.serdes._headers import HeaderSerde, MutableHeaders
from ks_actors.serdes._headers import reader as reader
from ks_actors.serdes._headers import rows_of_topic as rows_of_topic
from ks_actors.serdes._headers import writer as writer
from ks_actors.serdes._inferred import InferredSerde as InferredSerde
from ks_actors.serdes._inferred import chosen as chosen
from ks_actors.serdes._inferred import common as common
from ks_actors.serdes._inferred import inferred as inferred
from ks_actors.serdes._inferred import is_known as is_known
from ks_actors.serdes._lists import list_of
from ks_actors.serdes._of_type import SerdeOrType as SerdeOrType
from ks_actors.serdes._of_type import of_type as of_type
from ks_actors.serdes._of_type import serde_of as serde_of
from ks_actors.serdes._pydantic import adapter_of as adapter_of
from ks_actors.serdes._pydantic import converters as converters
from ks_actors.serdes._pydantic import holds_models as holds_models
from ks_actors.serdes._pydantic import is_model as is_model
from ks_actors.serdes._scalars import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    UUID,
    VOID,
)
from ks_actors.serdes._scalars import written_form as written_form
from ks_actors.serdes._serde import Serde
from ks_actors.serdes._serde import alike_writer as alike_writer
from ks_actors.serdes._serde import is_same as is_same
from ks_actors.serdes._serde import may_be_same as may_be_same
from ks_actors.serdes._structured import is_immutable as is_immutable
from ks_actors.serdes._structured import json, msgpack
from ks_actors.serdes._windowed import CustomWindowedSerde as CustomWindowedSerde
from ks_actors.serdes._windowed import SessionWindowedSerde as SessionWindowedSerde
from ks_actors.serdes._windowed import WindowedKeySerde as WindowedKeySerde
from ks_actors.serdes._windowed import WindowedSerde as WindowedSerde
from ks_actors.serdes._windowed import session_windowed, windowed

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "LONG",
    "SHORT",
    "STRING",
    "UUID",
    "VOID",
    "CloudEvent",
    "HeaderSerde",
    "MutableHeaders",
    "Serde",
    "arrow",
    "cloud_events",
    "json",
    "list_of",
    "msgpack",
    "session_windowed",
    "windowed",
]

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        return _hints.unknown_name(__name__, name)
