"""The serde of Protobuf. Needs the extra `registry`."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from ks_actors._errors import SerializationError
from ks_actors.registry._extra import extra
from ks_actors.registry._serde import RegistrySerde
from ks_actors.registry._types import Reference, Schema, as_base64

with extra("protobuf"):
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor, FileDescriptor

    from ks_actors.registry._client import SchemaRegistry
    from ks_actors.registry._types import Options
    from ks_actors.serdes import Serde

M = TypeVar("M", bound=Message)

_KNOWN: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Files that each registry has: they are not registered."""


def protobuf(registry: SchemaRegistry, message: type[M], options: Options) -> Serde[M]:
    """Return a serde of Protobuf; see SchemaRegistry.protobuf."""
    given: Any = message
    if not (isinstance(given, type) and issubclass(given, Message)):
        raise TypeError(
            f"protobuf is given {message!r}: give a class that protoc has made of a message"
        )
    if options.get("references"):
        raise TypeError("the references of a Protobuf schema are those that its file imports")
    return ProtobufSerde(registry, message, options)


@final
class ProtobufSerde(RegistrySerde[M]):
    """Protobuf with Confluent's framing: the id is followed by the place of the message."""

    def __init__(self, registry: SchemaRegistry, message: type[M], options: Options) -> None:
        descriptor: Any = message.DESCRIPTOR
        self._message: type[M] = message
        super().__init__(
            registry,
            Schema(as_base64(descriptor.file.serialized_pb), "PROTOBUF"),
            descriptor.full_name,
            options,
            name=f"protobuf({descriptor.full_name})",
            indexes=encoded(_place(descriptor)),
        )

    async def own_schema(self) -> Schema:
        """Return the schema of the message's file, after registering those that it imports."""
        file: Any = self._message.DESCRIPTOR.file
        return await self._registered(file)

    async def _registered(self, file: FileDescriptor) -> Schema:
        references: list[Reference] = []
        for imported in file.dependencies:
            if imported.name.startswith(_KNOWN):
                continue
            schema = await self._registered(imported)
            registry, normalize = self._registry, self._normalize
            ask = registry.register if self._auto_register else registry.lookup
            found = await ask(imported.name, schema, normalize=normalize)
            references.append(Reference(imported.name, imported.name, found.version or 1))
        return Schema(as_base64(file.serialized_pb), "PROTOBUF", tuple(references))

    async def writer_of(
        self,
        schema: Schema,  # noqa: ARG002 - the class has its own
        *,
        is_key: bool,  # noqa: ARG002 - equal messages have equal bytes
    ) -> Callable[[M], bytes]:
        """Return the function that writes a message."""
        message, name = self._message, self._name

        def write(value: M) -> bytes:
            if not isinstance(value, message):
                raise SerializationError(f"{name} does not write a {type(value).__name__}")
            data: bytes = value.SerializeToString(deterministic=True)
            return data

        return write

    async def reader_of(self, schema: Schema) -> Callable[[bytes, int], M]:
        """Return the function that reads a message, if the message is of the class."""
        file = _file(schema)
        fits: dict[bytes, int] = {}
        parse: Callable[[bytes], M] = self._message.FromString
        own, name = self._message.DESCRIPTOR.full_name, self._name

        def read(data: bytes, at: int) -> M:
            end = _end_of_indexes(data, at)
            indexes = data[at:end]
            if indexes not in fits:
                found = own if file is None else _name_at(file, decoded(indexes))
                if found != own:
                    raise SerializationError(f"{name}: the record is a {found}")
                fits[indexes] = end
            try:
                return parse(data[end:])
            except DecodeError as error:
                raise SerializationError(f"{name}: {error}") from error

        return read


def _place(descriptor: Descriptor) -> list[int]:
    """Return the index of a message in its file, with those of the messages around it."""
    path: list[int] = []
    found: Any = descriptor
    while found.containing_type is not None:
        path.append([each.name for each in found.containing_type.nested_types].index(found.name))
        found = found.containing_type
    path.append(list(found.file.message_types_by_name).index(found.name))
    return path[::-1]


def _file(schema: Schema) -> FileDescriptorProto | None:
    """Return the file of a schema; None if the registry gives another form of it."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, DecodeError):
        return None


def _name_at(file: FileDescriptorProto, path: list[int]) -> str:
    """Return the full name of the message at a place."""
    names = [file.package] if file.package else []
    messages: Any = file.message_type
    for index in path:
        if not 0 <= index < len(messages):
            raise SerializationError(f"{file.name} has no message {path}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def encoded(path: list[int]) -> bytes:
    """Return the bytes of a message's place: their number and the indexes, as zigzag varints."""
    if path == [0]:
        return b"\0"
    out = bytearray()
    for number in (len(path), *path):
        left = number << 1
        while left > 0x7F:  # noqa: PLR2004 - seven bits a byte
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)
    return bytes(out)


def decoded(data: bytes) -> list[int]:
    """Return a message's place from its bytes."""
    numbers: list[int] = []
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers[1:] or [0]


def _end_of_indexes(data: bytes, at: int) -> int:
    if data[at : at + 1] == b"\0":
        return at + 1
    count, at = _varint(data, at)
    for _ in range(count):
        _, at = _varint(data, at)
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint, and the position after it."""
    number = shift = 0
    while at < len(data) and shift < 35:  # noqa: PLR2004 - 32 bits
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the last one
            return (number >> 1) ^ -(number & 1), at
    raise SerializationError("a message's place ends in the middle of a number")
