"""Schemas in a registry: Avro, Protobuf and JSON Schema in Confluent's wire format.

`SchemaRegistry` is the client, and makes the serdes. Needs the extra `registry`.
"""

from ks_actors._errors import (
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
    SchemaIncompatible,
    SchemaNotFound,
)
from ks_actors.registry._client import SchemaRegistry
from ks_actors.registry._in_memory import InMemoryRegistry as InMemoryRegistry
from ks_actors.registry._types import Options, Reference, RegisteredSchema, Schema

__all__ = [
    "Options",
    "Reference",
    "RegisteredSchema",
    "RegistryError",
    "RegistryRefused",
    "RegistryUnavailable",
    "Schema",
    "SchemaIncompatible",
    "SchemaNotFound",
    "SchemaRegistry",
]
