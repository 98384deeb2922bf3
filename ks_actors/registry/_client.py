"""The client of schema registries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, final, overload
from urllib.parse import quote

import msgspec

from ks_actors._errors import (
    ConfigError,
    RegistryError,
    RegistryRefused,
    SchemaIncompatible,
    SchemaNotFound,
)
from ks_actors.registry._http import HttpTransport
from ks_actors.registry._in_memory import InMemoryRegistry
from ks_actors.registry._types import Options, RegisteredSchema, Schema

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from google.protobuf.message import Message

    from ks_actors.log.kafka import TokenProvider
    from ks_actors.registry._answers import Transport
    from ks_actors.serdes import Serde

    M = TypeVar("M", bound=Message)

T = TypeVar("T")
_MOCK: Final = "mock://"


@final
class SchemaRegistry:
    """A schema registry with Confluent's interface: Confluent's own, Karapace, Apicurio, Redpanda.

    `url` is its address, or several of the same registry, tried in turn; `mock://name` is a
    registry in memory, for tests, as an `InMemoryRegistry` is. `basic_auth` logs in with a user and
    a password, such as an API key and its secret. `token` logs in with tokens: a token itself, or
    a function, plain or async, that returns a token (called in a thread, again before expiry). Or
    `token_endpoint` issues tokens to `client_id` with `client_secret` (OpenID Connect, client
    credentials). Tokens need the extra `kafka`. `headers` are sent with each request, as clouds ask
    for: `target-sr-cluster`, `Confluent-Identity-Pool-Id`. `ssl_context` has other certificates
    than the system's, and those of the client.

    A request is tried again while the registry cannot be reached, or answers 408, 429 or 5xx: for
    `deadline_ms` in all, each time for at most `request_timeout_ms`. Requests run in threads, so
    they never block the event loop. Schemas never change, so answers are kept: schemas by id, ids
    by schema and subject.

    `avro`, `protobuf` and `json_schema` make serdes. An app finds the ids of their schemas before
    it starts; see docs/registry.md. Raises ConfigError for an address that is wrong, or would leak
    a login. All methods raise RegistryUnavailable after the deadline, RegistryRefused for a
    login that is wrong or lacks a right, and RegistryError for other answers.
    """

    def __init__(
        self,
        url: str | Sequence[str] | InMemoryRegistry,
        *,
        basic_auth: tuple[str, str] | None = None,
        token: str | TokenProvider | None = None,
        token_endpoint: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        scope: str | None = None,
        headers: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        request_timeout_ms: int = 10_000,
        deadline_ms: int = 60_000,
    ) -> None:
        self._transport: Transport
        memory = _in_memory(url)
        if memory is not None:
            self._transport = memory
        else:
            assert not isinstance(url, InMemoryRegistry)
            if sum(each is not None for each in (basic_auth, token, token_endpoint)) > 1:
                raise ConfigError("a registry has one login: basic_auth, token or token_endpoint")
            self._transport = HttpTransport(
                [each.strip() for each in url.split(",")] if isinstance(url, str) else list(url),
                basic_auth=basic_auth,
                token=_tokens(token, token_endpoint, client_id, client_secret, scope),
                headers=headers or {},
                ssl_context=ssl_context,
                request_timeout_s=request_timeout_ms / 1000,
                deadline_s=deadline_ms / 1000,
            )
        self._by_id: dict[int | str, Schema] = {}
        self._registered: dict[tuple[str, Schema, bool], RegisteredSchema] = {}
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}

    def __repr__(self) -> str:
        return f"<SchemaRegistry {self.address}>"

    @property
    def address(self) -> str:
        """The registry's addresses, as text."""
        return self._transport.address

    @property
    def at_once(self) -> bool:
        """Whether the registry is in memory, so that no method waits."""
        return self._transport.at_once

    # --- requests ---------------------------------------------------------------------------------

    async def register(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Register a schema under a subject, unless it exists there; return it with id and version.

        With `normalize` the registry first brings the schema to a canonical form. Raises
        SchemaIncompatible.
        """
        known = self._registered.get((subject, schema, normalize))
        if known is not None:
            return known
        query = {"normalize": "true"} if normalize else {}
        path = f"subjects/{_quoted(subject)}/versions"
        try:
            answer = await self._transport.call("POST", path, query, schema.request())
        except SchemaIncompatible:
            # Some registries answer so to one of two clients that register a schema simultaneously.
            try:
                return await self.lookup(subject, schema, normalize=normalize)
            except SchemaNotFound:
                pass
            raise
        found = self._read_registered(answer, subject, schema)
        if found.guid is None or found.version is None:
            # Older registries tell the id alone.
            return await self.lookup(subject, schema, normalize=normalize)
        self._note(found, schema, normalize=normalize)
        return found

    async def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return a schema that is registered under a subject. Raises SchemaNotFound."""
        known = self._registered.get((subject, schema, normalize))
        if known is not None:
            return known
        query = {"normalize": "true"} if normalize else {}
        path = f"subjects/{_quoted(subject)}"
        answer = await self._transport.call("POST", path, query, schema.request())
        found = self._read_registered(answer, subject, schema)
        self._note(found, schema, normalize=normalize)
        return found

    async def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest version of a subject. Raises SchemaNotFound."""
        return await self._version(subject, "latest")

    async def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version of a subject. Raises SchemaNotFound."""
        known = self._versions.get((subject, version))
        return await self._version(subject, str(version)) if known is None else known

    async def versions(self, subject: str) -> list[int]:
        """Return the numbers of a subject's versions, in order. Raises SchemaNotFound."""
        return self._as(
            list[int], await self._get(f"subjects/{_quoted(subject)}/versions", deleted="true")
        )

    async def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        return self._as(list[str], await self._get("subjects"))

    async def schema(self, id_: int | str) -> Schema:
        """Return the schema of an id (int) or a GUID (text). Raises SchemaNotFound."""
        known = self._by_id.get(id_)
        if known is None:
            kind = "ids" if isinstance(id_, int) else "guids"
            answer = await self._get(f"schemas/{kind}/{id_}", format="serialized")
            known = self._by_id[id_] = self._schema(answer)
        return known

    async def incompatibilities(
        self, subject: str, schema: Schema, version: int | str = "latest"
    ) -> list[str]:
        """Return why a schema is not compatible with a subject's version; empty if it is.

        A subject without any version accepts each schema.
        """
        path = f"compatibility/subjects/{_quoted(subject)}/versions/{version}"
        try:
            answer = await self._transport.call("POST", path, {"verbose": "true"}, schema.request())
        except SchemaNotFound:
            return []
        if answer.get("is_compatible"):
            return []
        return self._as(list[str], answer.get("messages") or ["the registry gives no reason"])

    async def _version(self, subject: str, version: str) -> RegisteredSchema:
        path = f"subjects/{_quoted(subject)}/versions/{version}"
        answer = await self._get(path, deleted="true", format="serialized")
        found = self._read_registered(answer, subject, None)
        self._note(found, None)
        return found

    async def _get(self, path: str, **query: str) -> Any:
        return await self._transport.call("GET", path, query, None)

    def _note(
        self, found: RegisteredSchema, asked: Schema | None, *, normalize: bool = False
    ) -> None:
        if asked is not None:
            self._registered[found.subject, asked, normalize] = found
        if found.version is not None:
            self._versions[found.subject, found.version] = found
        self._by_id.setdefault(found.id, found.schema)
        if found.guid is not None:
            self._by_id.setdefault(found.guid, found.schema)

    def _read_registered(self, answer: Any, subject: str, asked: Schema | None) -> RegisteredSchema:
        given = answer if isinstance(answer, dict) else {}
        schema = self._schema(given) if asked is None else asked
        return self._as(
            RegisteredSchema,
            {
                "schema": schema,
                "subject": subject,
                **{name: given.get(name) for name in ("id", "version", "guid")},
            },
        )

    def _schema(self, answer: Any) -> Schema:
        try:
            return Schema.of_answer(answer)
        except (msgspec.ValidationError, AttributeError) as error:
            raise RegistryError(f"{self.address} answers {answer!r:.200}: {error}") from error

    def _as(self, type_: type[T], answer: Any) -> T:
        try:
            return msgspec.convert(answer, type_)
        except msgspec.ValidationError as error:
            raise RegistryError(f"{self.address} answers {answer!r:.200}: {error}") from error

    # --- serdes -----------------------------------------------------------------------------------

    @overload
    def avro(
        self,
        schema: type[T],
        **options: Unpack[Options],
    ) -> Serde[T]: ...
    @overload
    def avro(
        self,
        schema: str | Mapping[str, Any] | None,
        type_: type[T],
        **options: Unpack[Options],
    ) -> Serde[T]: ...
    @overload
    def avro(
        self,
        schema: str | Mapping[str, Any] | None = ...,
        **options: Unpack[Options],
    ) -> Serde[Any]: ...
    def avro(self, schema: Any = None, type_: Any = None, **options: Unpack[Options]) -> Serde[Any]:
        """Return a serde of Avro.

        `schema` is a schema (text or dict), or a type that msgspec or Pydantic knows, from which
        a schema is made; with both, objects of `type_` are written by the schema. Without a type,
        values are what fastavro reads: dicts for records. Without a schema the serde only reads, as
        the writers' schemas say, or writes with `use_latest_version`.

        Records are read by the writer's schema and converted to `schema` by Avro's rules.

        For `options` see `Options`. Raises TypeError or ValueError for a wrong schema or option.
        """
        from ks_actors.registry._avro import avro  # noqa: PLC0415 - fastavro is loaded when needed

        return avro(self, schema, type_, options)

    def protobuf(self, message: type[M], **options: Unpack[Options]) -> Serde[M]:
        """Return a serde of Protobuf, for messages of one generated class.

        Files that the message's file imports are registered first, each under its own name. A
        record of another message type is bad data.
        """
        from ks_actors.registry._protobuf import protobuf  # noqa: PLC0415 - likewise

        return protobuf(self, message, options)

    @overload
    def json_schema(
        self,
        schema: type[T],
        *,
        validate: bool = ...,
        **options: Unpack[Options],
    ) -> Serde[T]: ...
    @overload
    def json_schema(
        self,
        schema: str | Mapping[str, Any],
        type_: type[T],
        *,
        validate: bool = ...,
        **options: Unpack[Options],
    ) -> Serde[T]: ...
    @overload
    def json_schema(
        self,
        schema: str | Mapping[str, Any],
        *,
        validate: bool = ...,
        **options: Unpack[Options],
    ) -> Serde[Any]: ...
    def json_schema(
        self, schema: Any, type_: Any = None, *, validate: bool = True, **options: Unpack[Options]
    ) -> Serde[Any]:
        """Return a serde of JSON with a JSON Schema.

        `schema` is a schema (text or dict), or a type that msgspec or Pydantic knows, from which
        a schema is made; with both, objects of `type_` are read and written. `validate` checks each
        object against a given schema; a schema made from a type needs no check. With a type, data
        that does not fit the type is refused when read.
        """
        from ks_actors.registry._json_schema import json_schema  # noqa: PLC0415 - likewise

        return json_schema(self, schema, type_, options, validate=validate)


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _in_memory(url: Any) -> InMemoryRegistry | None:
    if isinstance(url, InMemoryRegistry):
        return url
    if isinstance(url, str) and url.startswith(_MOCK):
        return InMemoryRegistry.named(url.removeprefix(_MOCK))
    return None


def _tokens(
    token: str | TokenProvider | None,
    endpoint: str | None,
    client_id: str | None,
    client_secret: str | None,
    scope: str | None,
) -> Callable[[], Awaitable[str]] | None:
    """Return the function for the current token of a login; None without one."""
    if isinstance(token, str):

        async def fixed() -> str:
            return token

        return fixed
    if token is None and endpoint is None:
        if client_id is not None or client_secret is not None or scope is not None:
            raise ConfigError("client_id, client_secret and scope are for a token_endpoint")
        return None
    from ks_actors.log.kafka import KafkaOptions  # noqa: PLC0415 - it needs the extra `kafka`
    from ks_actors.log.kafka.client import Tokens  # noqa: PLC0415 - likewise

    tokens = Tokens(
        KafkaOptions(
            sasl_mechanism="OAUTHBEARER",
            sasl_token_provider=token,
            sasl_oauthbearer_token_endpoint_url=endpoint,
            sasl_oauthbearer_client_id=client_id,
            sasl_oauthbearer_client_secret=client_secret,
            sasl_oauthbearer_scope=scope,
        )
    )

    async def current() -> str:
        try:
            return (await tokens.current()).value
        except Exception as error:
            raise RegistryRefused(f"there is no token for the registry: {error}") from error

    return current
