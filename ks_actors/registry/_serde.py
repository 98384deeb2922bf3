"""Serdes in Confluent's wire format: data of a schema, with the schema's id."""

from __future__ import annotations

import asyncio
import struct
import time
import uuid
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, get_args

from ks_actors._errors import RegistryError, SchemaNotFound, SerializationError
from ks_actors.registry._types import IdPlace, SubjectName
from ks_actors.serdes import HeaderSerde, collected

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ks_actors.registry._client import SchemaRegistry
    from ks_actors.registry._types import Options, RegisteredSchema, Schema
    from ks_actors.serdes import MutableHeaders, Needs

T = TypeVar("T")
_Use = tuple[str, bool]
"""A subject, and whether its data are keys."""

_BY_ID, _BY_GUID = b"\0", b"\1"
_ID: Final = struct.Struct(">I")
_AFTER_ID, _AFTER_GUID = 5, 17
_KEY_HEADER: Final = "__key_schema_id"
_VALUE_HEADER: Final = "__value_schema_id"
_ASKED_AGAIN_S: Final = 10.0
"""Seconds until the registry is asked again for an id that it did not know."""


class _Written(NamedTuple):
    """The form of written data: the id in front or in the header, and the function for the rest."""

    prefix: bytes
    header: bytes | None
    write: Callable[[Any], bytes]


class RegistrySerde(HeaderSerde[T]):
    """Base class of serdes with schemas in a registry.

    `record` is the schema's name, `indexes` the bytes that follow an id.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | None,
        record: str | None,
        options: Options,
        *,
        name: str,
        indexes: bytes = b"",
    ) -> None:
        self._registry = registry
        self._schema = schema
        self._record = record
        self._name = name
        self._indexes = indexes
        self._by = _one_of(options, "subject", SubjectName, "topic")
        self._ids = _one_of(options, "ids", IdPlace, "prefix")
        self._auto_register = options.get("auto_register", True)
        self._use_latest = options.get("use_latest_version", False)
        self._normalize = options.get("normalize", False)
        self._topics = tuple(options.get("topics", ()))
        self._told = (registry, name, schema, record, indexes, dict(options))
        if unknown := sorted(
            set(options)
            - {"subject", "ids", "auto_register", "use_latest_version", "normalize"}
            - {"references", "topics"}
        ):
            raise TypeError(f"{name} has no option {', '.join(unknown)}")
        if self._by != "topic" and record is None:
            raise ValueError(
                f"{name} names subjects by its record, and its schema has no name: give it one, or "
                "use subject='topic'"
            )
        self.adds_headers: bool = self._ids == "header"
        # By subject and role, and by the id or the GUID, as bytes.
        self._written: dict[_Use, _Written] = {}
        self._read: dict[bytes, Callable[[bytes, int], T]] = {}
        self._missing: dict[bytes, float] = {}

    def alike(self, other: RegistrySerde[Any]) -> bool:
        """Return whether registry, schema and options are the same."""
        return self._told == other._told

    def __repr__(self) -> str:
        return f"<Serde {self._name}>"

    # --- what a format does -----------------------------------------------------------------------

    async def own_schema(self) -> Schema | None:
        """Return the schema to write by; what it refers to is registered. Raises RegistryError."""
        return self._schema

    @abstractmethod
    async def writer_of(self, schema: Schema, *, is_key: bool) -> Callable[[T], bytes]:
        """Return the function that writes by a schema."""

    @abstractmethod
    async def reader_of(self, schema: Schema) -> Callable[[bytes, int], T]:
        """Return the function that reads data from a position on, as a writer's schema says."""

    # --- serde ------------------------------------------------------------------------------------

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[T], bytes]:
        """Return the function that writes the id in front of the data."""
        use = self._use(topic, is_key=is_key)
        written, late = self._written, self._late

        def serialize(value: T) -> bytes:
            made = written.get(use) or late(use)
            return made.prefix + made.write(value)

        return serialize

    def serializer_with_headers(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[T, MutableHeaders], bytes]:
        """Return the function that writes the id into a header, or in front of the data."""
        use = self._use(topic, is_key=is_key)
        name = _KEY_HEADER if is_key else _VALUE_HEADER
        written, late, in_header = self._written, self._late, self._ids == "header"

        def serialize(value: T, headers: MutableHeaders) -> bytes:
            made = written.get(use) or late(use)
            data = made.write(value)
            # An id that the record already has belongs to other data, and would mislead readers.
            if headers:
                headers[:] = [each for each in headers if each[0] != name]
            if not in_header:
                return made.prefix + data
            headers.append((name, made.header))
            return data

        return serialize

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], T]:
        """Return the function that reads data with its id in front."""
        needs = self._needs_of_reader(topic, is_key=is_key)
        return self._decode if needs is None else partial(self._probe, needs)

    def deserializer_with_headers(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[bytes, MutableHeaders], T]:
        """Return the function that reads data with its id in a header, else in front."""
        needs = self._needs_of_reader(topic, is_key=is_key)
        name = _KEY_HEADER if is_key else _VALUE_HEADER
        decode = self._decode if needs is None else partial(self._probe, needs)

        def deserialize(data: bytes, headers: MutableHeaders) -> T:
            found = None
            for each, content in headers:
                if each == name:
                    found = content
            if found is None:
                return decode(data)
            headers[:] = [each for each in headers if each[0] != name]
            return decode(found + data)

        return deserialize

    def _decode(self, data: bytes) -> T:
        # The header has the bytes that the prefix would have.
        kind = data[:1]
        if kind == _BY_ID:
            key, at = data[1:_AFTER_ID], _AFTER_ID
        elif kind == _BY_GUID:
            key, at = data[1:_AFTER_GUID], _AFTER_GUID
        else:
            raise SerializationError(
                f"{self._name}: these bytes are not in the format of a registry, which begins with "
                f"the byte 0 and the id of a schema: {data[:32]!r}"
            )
        return (self._read.get(key) or self._unknown(key))(data, at)

    # --- ids --------------------------------------------------------------------------------------

    def _subject(self, topic: str, *, is_key: bool) -> str | None:
        if self._by == "topic":
            return f"{topic}-{'key' if is_key else 'value'}"
        return self._record if self._by == "record" else f"{topic}-{self._record}"

    def _use(self, topic: str, *, is_key: bool) -> _Use:
        uses: list[_Use] = []
        for each in (topic, *self._topics):
            subject = self._subject(each, is_key=is_key)
            assert subject is not None
            uses.append((subject, is_key))
        if (needs := collected()) is not None:
            for use in uses:
                needs.add((self, use), partial(self._prepare, use))
        return uses[0]

    def _needs_of_reader(self, topic: str, *, is_key: bool) -> Needs | None:
        needs = collected()
        if needs is not None and (subject := self._subject(topic, is_key=is_key)) is not None:
            needs.add((self, "read", subject), partial(self._load, subject))
        return needs

    def _probe(self, needs: Needs, data: bytes) -> Any:
        """Add a lookup to `needs` if the id of data is unknown; read nothing."""
        key = data[1:_AFTER_ID] if data[:1] == _BY_ID else data[1:_AFTER_GUID]
        if (
            data[:1] in {_BY_ID, _BY_GUID}
            and key not in self._read
            and self._missing.get(key, 0.0) <= time.monotonic()
        ):
            needs.add((self, key), partial(self._learn, key))

    async def _prepare(self, use: _Use) -> None:
        """Find the id to write under a subject."""
        if use in self._written:
            return
        subject, is_key = use
        try:
            found = await self._find(subject)
        except RegistryError as error:
            error.add_note(f"{self!r} needs the schema of subject {subject}")
            raise
        guid = None if found.guid is None else uuid.UUID(found.guid).bytes
        if guid is None and self._ids == "header":
            raise RegistryError(
                f"{self._registry.address} gives no GUIDs of schemas, so {self!r} cannot write ids "
                "into headers: use ids='prefix'"
            )
        await self._note(found)
        self._written[use] = _Written(
            _BY_ID + _ID.pack(found.id) + self._indexes,
            None if guid is None else _BY_GUID + guid + self._indexes,
            await self.writer_of(found.schema, is_key=is_key),
        )

    async def _find(self, subject: str) -> RegisteredSchema:
        registry = self._registry
        if self._use_latest:
            return await registry.latest(subject)
        schema = await self.own_schema()
        if schema is None:
            raise RegistryError(
                f"{self!r} has no schema to write by: give it one, or use_latest_version=True"
            )
        if self._auto_register:
            return await registry.register(subject, schema, normalize=self._normalize)
        try:
            return await registry.lookup(subject, schema, normalize=self._normalize)
        except SchemaNotFound as error:
            error.add_note("register it before the start, or allow it by auto_register=True")
            raise

    async def _load(self, subject: str) -> None:
        """Look up all versions of a subject: rows on disk may have any of them."""
        registry = self._registry
        try:
            for version in await registry.versions(subject):
                await self._note(await registry.version(subject, version))
        except SchemaNotFound:
            return  # nothing is written yet, or under another subject

    async def _learn(self, key: bytes) -> None:
        """Look up the schema of an id or a GUID; without it, records with that id are bad data."""
        of_id = len(key) == _ID.size
        number = _ID.unpack(key)[0] if of_id else str(uuid.UUID(bytes=key))
        try:
            schema = await self._registry.schema(number)
        except SchemaNotFound:
            self._missing[key] = time.monotonic() + _ASKED_AGAIN_S
            return
        self._read[key] = await self._reader(schema, f"schema {number}")

    async def _note(self, found: RegisteredSchema) -> None:
        keys = [_ID.pack(found.id)]
        if found.guid is not None:
            keys.append(uuid.UUID(found.guid).bytes)
        if not all(key in self._read for key in keys):
            read = await self._reader(found.schema, f"schema {found.id} of {found.subject}")
            self._read.update(dict.fromkeys(keys, read))

    async def _reader(self, schema: Schema, what: str) -> Callable[[bytes, int], T]:
        try:
            return await self.reader_of(schema)
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001 - a schema may be anything; its records are bad data
            reason = f"{self._name} cannot read records of {what}: {error}"

            def unreadable(_data: bytes, _at: int) -> T:
                raise SerializationError(reason)

            return unreadable

    def _late(self, use: _Use) -> _Written:
        """Return the form for a subject that was not known at the start."""
        if not self._run(self._prepare, use):
            raise SerializationError(
                f"{self!r} has not found the schema of subject {use[0]} before the start: name "
                "topics that a function chooses in its option topics, or use subject='record'"
            )
        return self._written[use]

    def _unknown(self, key: bytes) -> Callable[[bytes, int], T]:
        """Return the reader of an id that no batch has shown before."""
        of_id = len(key) == _ID.size
        asked = (of_id or len(key) == _AFTER_GUID - 1) and (
            self._missing.get(key, 0.0) > time.monotonic() or self._run(self._learn, key)
        )
        if (found := self._read.get(key)) is not None:
            return found
        number = _ID.unpack(key)[0] if of_id else key.hex()
        address = self._registry.address
        raise SerializationError(
            f"{self._name}: schema {number} is not in {address}: has it been deleted, or was the "
            "record written with another registry?"
            if asked or key in self._missing
            else f"{self._name}: schema {number} was not looked up in {address} before its data "
            "are read: register it under the subject of the topic"
        )

    def _run(self, find: Callable[[Any], Coroutine[Any, Any, None]], what: Any) -> bool:
        """Run `find` now, if no event loop has to wait for it; return whether that was possible."""
        if self._registry.at_once:
            try:
                find(what).send(None)
            except StopIteration:
                return True
            raise AssertionError("a registry in memory does not wait")
        if asyncio._get_running_loop() is not None:
            return False
        asyncio.run(find(what))
        return True


def _one_of(options: Options, name: str, allowed: Any, default: str) -> str:
    given = options.get(name, default)
    if given not in get_args(allowed):
        raise ValueError(f"{name} is {given!r}: use one of {', '.join(get_args(allowed))}")
    return str(given)
