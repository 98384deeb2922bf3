"""The headers of records as the carrier of contexts, for OpenTelemetry's propagators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.propagators.textmap import Getter, Setter

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from ks_actors.records import Headers


class HeaderGetter(Getter["Headers"]):
    """Read the fields of a context from the headers of a record."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        """Return the value of a field; None when there is none, or when it is not text.

        The last header of a name counts, as in Kafka.
        """
        for name, value in reversed(carrier):
            if name == key and value is not None:
                try:
                    return [value.decode()]
                except UnicodeDecodeError:
                    return None
        return None

    def keys(self, carrier: Headers) -> list[str]:
        """Return the names of all headers."""
        return [name for name, _ in carrier]


class FieldSetter(Setter[dict[str, str]]):
    """Collect the fields of a context."""

    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        """Set a field."""
        carrier[key] = value


def with_fields(headers: Headers, names: Container[str], fields: Mapping[str, str]) -> Headers:
    """Return headers with a context's fields in place of the headers of these names."""
    kept = tuple(header for header in headers if header[0] not in names)
    return kept + tuple((name, value.encode()) for name, value in fields.items())
