"""Answers of registries, and the errors that they tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ks_actors._errors import RegistryError, RegistryRefused, SchemaIncompatible, SchemaNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

_OK: Final = range(200, 300)
_UNKNOWN_USER, _DENIED, _NOT_FOUND, _INCOMPATIBLE = 401, 403, 404, 409
_REMEDIES: Final = {
    _UNKNOWN_USER: "check the login: basic_auth, token or token_endpoint",
    _DENIED: "give this user the right to do so",
}


class Transport(Protocol):
    """The way to a registry."""

    @property
    def address(self) -> str:
        """The registry in messages."""
        ...

    @property
    def at_once(self) -> bool:
        """Whether `call` never waits."""
        ...

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
    ) -> Any:
        """Return the answer, decoded from JSON. Raises RegistryError."""
        ...


def checked(address: str, request: str, status: int, answer: Any) -> Any:
    """Return a registry's answer; raise the error that it tells."""
    if status in _OK:
        return answer
    code, text = None, ""
    if isinstance(answer, dict):
        code, text = answer.get("error_code"), answer.get("message") or ""
    told = f"{address}: {request} failed: {status}{f' ({code})' if code else ''} {text}".rstrip()
    kinds = {
        _UNKNOWN_USER: RegistryRefused,
        _DENIED: RegistryRefused,
        _NOT_FOUND: SchemaNotFound,
        _INCOMPATIBLE: SchemaIncompatible,
    }
    remedy = _REMEDIES.get(status)
    raise kinds.get(status, RegistryError)(
        told if remedy is None else f"{told}; {remedy}",
        status=status,
        code=code if isinstance(code, int) else None,
    )
