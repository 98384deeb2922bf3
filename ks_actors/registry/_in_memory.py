"""A registry in memory, for tests."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import unquote
from weakref import WeakValueDictionary

import msgspec

from ks_actors.registry._answers import checked
from ks_actors.registry._types import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

Answer = tuple[int, Any]

_named: Final[WeakValueDictionary[str, InMemoryRegistry]] = WeakValueDictionary()


class _Failure(Exception):
    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.answer: Answer = status, {"error_code": code, "message": text}


@final
class InMemoryRegistry:
    """A schema registry in memory, with the interface of Confluent's over HTTP.

    `SchemaRegistry("mock://name")` uses the registry that `named` returns,
    `SchemaRegistry(registry)` this registry. Equal schemas have one id, in all subjects. The level
    of compatibility is NONE: all schemas are compatible, until `refuse` is called for a subject.
    """

    at_once: bool = True

    def __init__(self) -> None:
        self.address: str = "the registry in memory"
        self.requests: list[str] = []
        """All requests so far: method and path."""
        self._schemas: list[Schema] = []
        self._subjects: dict[str, list[int]] = {}
        self._refused: dict[str, str] = {}

    @classmethod
    def named(cls, name: str) -> InMemoryRegistry:
        """Return the registry `mock://<name>` of this process, which lives while it is used."""
        found = _named.get(name)
        if found is None:
            found = _named[name] = cls()
            found.address = f"mock://{name}"
        return found

    def refuse(self, subject: str, reason: str) -> None:
        """Refuse further schemas of a subject as incompatible, for this reason."""
        self._refused[subject] = reason

    def subjects(self) -> list[str]:
        """Return the names of all subjects, in order."""
        return sorted(self._subjects)

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],  # noqa: ARG002 - schemas have one form here, and none is deleted
        body: Mapping[str, Any] | None,
    ) -> Any:
        """Return the answer. Raises RegistryError."""
        status, answer = self.answer(method, path, body)
        return checked(self.address, f"{method} {path}", status, answer)

    def answer(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, Any]:
        """Return HTTP status and JSON answer of a request, as a server does."""
        self.requests.append(f"{method} {path}")
        parts = list(map(unquote, path.strip("/").split("/")))
        try:
            return 200, self._get(parts) if method == "GET" else self._post(parts, body or {})
        except _Failure as failure:
            return failure.answer

    def _get(self, parts: list[str]) -> Any:
        match parts:
            case ["subjects"]:
                return self.subjects()
            case ["subjects", subject, "versions"]:
                return list(range(1, len(self._versions(subject)) + 1))
            case ["subjects", subject, "versions", version]:
                return self._registered(subject, self._number(subject, version))
            case ["schemas", "ids", number]:
                return self._described(self._id(number))
            case ["schemas", "guids", guid]:
                return self._described(self._id_of_guid(guid))
            case _:
                raise _Failure(404, 404, "HTTP 404 Not Found")

    def _post(self, parts: list[str], body: Mapping[str, Any]) -> Any:
        match parts:
            case ["subjects", subject, "versions"]:
                return self._register(subject, _schema(body))
            case ["subjects", subject]:
                return self._lookup(subject, _schema(body))
            case ["compatibility", "subjects", subject, "versions", version]:
                self._number(subject, version)
                reason = self._refused.get(subject)
                messages = [] if reason is None else [reason]
                return {"is_compatible": not messages, "messages": messages}
            case _:
                raise _Failure(404, 404, "HTTP 404 Not Found")

    def _register(self, subject: str, schema: Schema) -> dict[str, Any]:
        ids = self._subjects.get(subject, [])
        if schema in self._schemas and (known := self._schemas.index(schema) + 1) in ids:
            return self._registered(subject, ids.index(known) + 1)
        if subject in self._refused:
            raise _Failure(409, 409, self._refused[subject])
        for each in schema.references:
            self._number(each.subject, str(each.version))
        if schema not in self._schemas:
            self._schemas.append(schema)
        self._subjects.setdefault(subject, []).append(self._schemas.index(schema) + 1)
        return self._registered(subject, len(self._subjects[subject]))

    def _lookup(self, subject: str, schema: Schema) -> dict[str, Any]:
        ids = self._versions(subject)
        for at, number in enumerate(ids):
            if self._schemas[number - 1] == schema:
                return self._registered(subject, at + 1)
        raise _Failure(404, 40403, "Schema not found")

    def _versions(self, subject: str) -> list[int]:
        if subject not in self._subjects:
            raise _Failure(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def _number(self, subject: str, version: str) -> int:
        ids = self._versions(subject)
        number = len(ids) if version == "latest" else int(version) if version.isdecimal() else 0
        if not 1 <= number <= len(ids):
            raise _Failure(404, 40402, f"Version {version} not found.")
        return number

    def _id(self, number: str) -> int:
        if not number.isdecimal() or not 1 <= int(number) <= len(self._schemas):
            raise _Failure(404, 40403, f"Schema {number} not found")
        return int(number)

    def _id_of_guid(self, guid: str) -> int:
        for number, schema in enumerate(self._schemas, 1):
            if _guid(schema) == guid:
                return number
        raise _Failure(404, 40403, f"Schema {guid} not found")

    def _described(self, number: int) -> dict[str, Any]:
        schema = self._schemas[number - 1]
        return {**schema.request(), "guid": _guid(schema)}

    def _registered(self, subject: str, version: int) -> dict[str, Any]:
        number = self._subjects[subject][version - 1]
        return {
            "subject": subject,
            "version": version,
            "id": number,
            **self._described(number),
        }


def _schema(body: Mapping[str, Any]) -> Schema:
    try:
        return Schema.of_answer(body)
    except msgspec.ValidationError as error:
        raise _Failure(422, 42201, f"Invalid schema: {error}") from error


def _guid(schema: Schema) -> str:
    digest = hashlib.md5(msgspec.json.encode(schema.request()), usedforsecurity=False)
    return str(uuid.UUID(bytes=digest.digest()))
