"""Requests that name the expected broker and cluster to a broker (KIP-1242)."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ks_actors.log.kafka._aiokafka import (
    CompactString,
    Int32,
    RequestStruct,
    ResponseHeader_v0,
    Schema,
)
from ks_actors.log.kafka.wire._flexible import FlexibleRequest, TaggedFields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BytesIO

_KEY: Final = 18
# The first version of ApiVersions with a cluster and a broker, new in Kafka 4.4.
_VERSION: Final = 5
_SHORT: Final = Struct(">h")
_TEXT: Final = CompactString("utf-8")


class _IdentityResponse:
    """The error code of a response; the versions after it are already known."""

    API_KEY = _KEY
    API_VERSION = _VERSION

    def __init__(self, error_code: int) -> None:
        self.error_code: int = error_code

    @classmethod
    def decode(cls, data: BytesIO) -> _IdentityResponse:
        return cls(*_SHORT.unpack(data.read(_SHORT.size)))


class _IdentityRequest(FlexibleRequest, RequestStruct):  # type: ignore[misc]
    """Ask a broker to answer REBOOTSTRAP_REQUIRED if it is not the expected broker."""

    API_KEY = _KEY
    API_VERSION = _VERSION
    RESPONSE_TYPE: ClassVar[Any] = _IdentityResponse
    SCHEMA = Schema(
        ("client_software_name", _TEXT),
        ("client_software_version", _TEXT),
        ("cluster_id", _TEXT),
        ("node_id", Int32),
        ("tags", TaggedFields),
    )

    def __init__(self, cluster_id: str, node: int) -> None:
        super().__init__("ks-actors", "1", cluster_id, node, {})

    def prepare(self, _: object) -> _IdentityRequest:
        """Return the message."""
        return self

    # The base classes name the parameter differently.
    def parse_response_header(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, data: BytesIO | bytes
    ) -> Any:
        """Return the header, which has no tags: clients of all versions must be able to read it."""
        return ResponseHeader_v0.decode(data)


def identity_request(
    cluster_id: str, node: int, versions: Mapping[int, tuple[int, int]]
) -> Any | None:
    """Return the request; None if the broker does not support it."""
    low, high = versions.get(_KEY, (0, -1))
    return _IdentityRequest(cluster_id, node) if low <= _VERSION <= high else None
