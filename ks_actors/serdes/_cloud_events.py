"""CloudEvents 1.0 in their binding to Kafka, binary and structured."""

from __future__ import annotations

import datetime as dt
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, final

import msgspec

from ks_actors._errors import SerializationError, TopologyError
from ks_actors.serdes._headers import HeaderSerde
from ks_actors.serdes._of_type import inner_serde

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.serdes._headers import MutableHeaders
    from ks_actors.serdes._of_type import SerdeOrType
    from ks_actors.serdes._serde import Serde

T = TypeVar("T")

_VERSION: Final = "1.0"
_PREFIX: Final = "ce_"
_CONTENT: Final = "content-type"
_STRUCTURED: Final = "application/cloudevents"
_REQUIRED: Final = ("id", "source", "type")
_OPTIONAL: Final = ("subject", "dataschema")
_KNOWN: Final = {*_REQUIRED, *_OPTIONAL, "time", "specversion", "datacontenttype"}


class CloudEvent(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """An event with its attributes; `extensions` are further attributes, by lower-case names."""

    data: T | None = None
    id: str
    source: str
    type: str
    subject: str | None = None
    time: dt.datetime | None = None
    dataschema: str | None = None
    extensions: dict[str, str] = msgspec.field(default_factory=dict)


def cloud_events(
    data: SerdeOrType[T],
    *,
    mode: Literal["binary", "structured"] = "binary",
    content_type: str = "application/json",
) -> Serde[CloudEvent[T]]:
    """Return the serde of values that are CloudEvents, with data of the serde or type `data`.

    In mode binary the value is the data, and the attributes are headers; in mode structured the
    value is a JSON object with both. Either mode can be read. Stores have no headers, so they use
    the structured form. `content_type` is that of the data. Raises TopologyError for another mode.
    """
    if mode not in {"binary", "structured"}:
        raise TopologyError(f"mode of cloud_events is {mode!r}: use binary or structured")
    return _CloudEventSerde(inner_serde(data, "cloud_events"), mode, content_type)


@final
class _CloudEventSerde(HeaderSerde[CloudEvent[T]]):
    def __init__(self, inner: Serde[T], mode: str, content_type: str) -> None:
        self.inner: Serde[T] = inner
        self._mode = mode
        self._content = content_type
        self._is_json = content_type.partition(";")[0].strip().endswith(("/json", "+json"))

    def __repr__(self) -> str:
        return f"<Serde cloud_events({self.inner!r}, {self._mode})>"

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[CloudEvent[T]], bytes]:
        """Return the function that writes the structured form."""
        _refuse_key(is_key=is_key)
        write, content, is_json = self.inner.serializer(topic), self._content, self._is_json

        def serialize(event: CloudEvent[T]) -> bytes:
            made: dict[str, Any] = {**_attributes(event), "datacontenttype": content}
            if event.data is not None:
                data = write(event.data)
                if is_json:
                    made["data"] = msgspec.Raw(data)
                else:
                    made["data_base64"] = b64encode(data).decode()
            return msgspec.json.encode(made)

        return serialize

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], CloudEvent[T]]:
        """Return the function that reads the structured form."""
        _refuse_key(is_key=is_key)
        read = self.inner.deserializer(topic)
        decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

        def deserialize(data: bytes) -> CloudEvent[T]:
            parts = decode(data)
            plain, coded = parts.pop("data", None), parts.pop("data_base64", None)
            content = None
            if coded is not None:
                content = b64decode(msgspec.json.decode(coded, type=str))
            elif plain is not None and bytes(plain) != b"null":
                content = bytes(plain)
            found = {name: _text(msgspec.json.decode(each)) for name, each in parts.items()}
            return _event(found, None if content is None else read(content))

        return deserialize

    def serializer_with_headers(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[CloudEvent[T], MutableHeaders], bytes]:
        """Return the function that writes the form of the mode."""
        whole, write = self.serializer(topic, is_key=is_key), self.inner.serializer(topic)
        content, structured = self._content.encode(), self._mode == "structured"

        def serialize(event: CloudEvent[T], headers: MutableHeaders) -> bytes:
            _take(headers)
            if structured:
                headers.append((_CONTENT, f"{_STRUCTURED}+json; charset=UTF-8".encode()))
                return whole(event)
            headers.append((_CONTENT, content))
            headers += [
                (_PREFIX + name, text.encode()) for name, text in _attributes(event).items()
            ]
            # A record without a value would be a deletion.
            return b"" if event.data is None else write(event.data)

        return serialize

    def deserializer_with_headers(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[bytes, MutableHeaders], CloudEvent[T]]:
        """Return the function that reads both forms."""
        whole, read = self.deserializer(topic, is_key=is_key), self.inner.deserializer(topic)

        def deserialize(data: bytes, headers: MutableHeaders) -> CloudEvent[T]:
            found = _take(headers)
            if _PREFIX + "specversion" not in found or found.get(_CONTENT, "").startswith(
                _STRUCTURED
            ):
                return whole(data)
            attributes = {
                name.removeprefix(_PREFIX): text
                for name, text in found.items()
                if name.startswith(_PREFIX)
            }
            return _event(attributes, read(data) if data else None)

        return deserialize


def _refuse_key(*, is_key: bool) -> None:
    if is_key:
        raise TopologyError("cloud_events is a serde of values: give keys another one")


def _take(headers: MutableHeaders) -> dict[str, str]:
    """Remove an event's headers from a record's headers, and return them."""
    own = [each for each in headers if each[0].startswith(_PREFIX) or each[0].lower() == _CONTENT]
    headers[:] = [each for each in headers if each not in own]
    return {name.lower(): (value or b"").decode() for name, value in own}


def _attributes(event: CloudEvent[Any]) -> dict[str, str]:
    made = {"specversion": _VERSION, "id": event.id, "source": event.source, "type": event.type}
    for name in _OPTIONAL:
        if (value := getattr(event, name)) is not None:
            made[name] = value
    if event.time is not None:
        made["time"] = event.time.isoformat().replace("+00:00", "Z")
    return made | event.extensions


def _text(value: Any) -> str:
    # Kafka's headers have booleans in lower case.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _event(found: Mapping[str, str], data: Any) -> CloudEvent[Any]:
    if missing := [name for name in ("specversion", *_REQUIRED) if name not in found]:
        raise SerializationError(f"a CloudEvent has no attribute {', '.join(missing)}")
    if found["specversion"] != _VERSION:
        raise SerializationError(f"a CloudEvent has specversion {found['specversion']!r}, not 1.0")
    time = found.get("time")
    return CloudEvent(
        data=data,
        time=None if time is None else dt.datetime.fromisoformat(time),
        extensions={name: text for name, text in found.items() if name not in _KNOWN},
        **{name: found[name] for name in (*_REQUIRED, *_OPTIONAL) if name in found},
    )
