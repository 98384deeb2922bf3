"""The parts of aiokafka that the client uses: the one place that imports it.

These are structs of requests, codecs, the records in C, a login by SCRAM, and errors. Many are not
public in aiokafka, so a newer version may lack a part: then the import of this module fails, or
`check_aiokafka` raises an error.
"""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import aiokafka  # type: ignore[import-untyped]

from ks_actors._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_REMEDY: Final = "install a version that is known to have it: pip install 'aiokafka>=0.14,<0.16'"

try:
    from aiokafka import codec
    from aiokafka.conn import (  # type: ignore[import-untyped]
        SaslGSSAPIAuthenticator,
        ScramAuthenticator,
        collect_hosts,
    )
    from aiokafka.coordinator.protocol import (  # type: ignore[import-untyped]
        ConsumerProtocolMemberAssignment,
        ConsumerProtocolMemberMetadata,
    )
    from aiokafka.errors import (  # type: ignore[import-untyped]
        CorrelationIdError,
        CorruptRecordException,
        KafkaConnectionError,
        KafkaError,
        SaslAuthenticationFailed,
        UnsupportedCodecError,
        UnsupportedSaslMechanismError,
        for_code,
    )
    from aiokafka.protocol.admin import (  # type: ignore[import-untyped]
        ApiVersionRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteRecordsRequest,
        DeleteTopicsRequest,
        DescribeConfigsRequest,
        DescribeGroupsRequest,
        DescribeGroupsResponse_v2,
        ListGroupsRequest,
        SaslAuthenticateRequest,
        SaslHandShakeRequest,
    )
    from aiokafka.protocol.api import (  # type: ignore[import-untyped]
        RequestStruct,
        Response,
        ResponseHeader_v0,
    )
    from aiokafka.protocol.commit import (  # type: ignore[import-untyped]
        OffsetCommitRequest,
    )
    from aiokafka.protocol.coordination import (  # type: ignore[import-untyped]
        FindCoordinatorRequest,
    )
    from aiokafka.protocol.group import (  # type: ignore[import-untyped]
        JoinGroupRequest,
        SyncGroupRequest,
    )
    from aiokafka.protocol.metadata import (  # type: ignore[import-untyped]
        MetadataRequest,
        MetadataResponse_v5,
    )
    from aiokafka.protocol.offset import (  # type: ignore[import-untyped]
        OffsetRequest,
    )
    from aiokafka.protocol.produce import (  # type: ignore[import-untyped]
        ProduceRequest_v8,
        ProduceResponse_v8,
    )
    from aiokafka.protocol.transaction import (  # type: ignore[import-untyped]
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        EndTxnRequest,
    )
    from aiokafka.protocol.types import (  # type: ignore[import-untyped]
        AbstractType,
        Array,
        Boolean,
        Bytes,
        CompactArray,
        CompactString,
        Int8,
        Int16,
        Int32,
        Int64,
        Schema,
        String,
    )
    from aiokafka.record.default_records import (  # type: ignore[import-untyped]
        DefaultRecordBatchBuilder,
    )
    from aiokafka.record.memory_records import (  # type: ignore[import-untyped]
        MemoryRecords,
    )
    from aiokafka.record.util import (  # type: ignore[import-untyped]
        calc_crc32c,
    )
except ImportError as _missing:
    raise ConfigError(f"aiokafka {aiokafka.__version__}: {_missing}; {_REMEDY}") from _missing

__all__ = [
    "AbstractType",
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "ApiVersionRequest",
    "Array",
    "Boolean",
    "Bytes",
    "CompactArray",
    "CompactString",
    "ConsumerProtocolMemberAssignment",
    "ConsumerProtocolMemberMetadata",
    "CorrelationIdError",
    "CorruptRecordException",
    "CreatePartitionsRequest",
    "CreateTopicsRequest",
    "DefaultRecordBatchBuilder",
    "DeleteRecordsRequest",
    "DeleteTopicsRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse_v2",
    "EndTxnRequest",
    "FindCoordinatorRequest",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "JoinGroupRequest",
    "KafkaConnectionError",
    "KafkaError",
    "ListGroupsRequest",
    "MemoryRecords",
    "MetadataRequest",
    "MetadataResponse_v5",
    "OffsetCommitRequest",
    "OffsetRequest",
    "ProduceRequest_v8",
    "ProduceResponse_v8",
    "RequestStruct",
    "Response",
    "ResponseHeader_v0",
    "SaslAuthenticateRequest",
    "SaslAuthenticationFailed",
    "SaslGSSAPIAuthenticator",
    "SaslHandShakeRequest",
    "Schema",
    "ScramAuthenticator",
    "String",
    "SyncGroupRequest",
    "UnsupportedCodecError",
    "UnsupportedSaslMechanismError",
    "calc_crc32c",
    "check_aiokafka",
    "codec",
    "collect_hosts",
    "for_code",
]

# The parts of aiokafka in use, and the parameters passed to them.
_TOUCHED: Mapping[str, tuple[str, ...]] = {
    "aiokafka.conn:ScramAuthenticator": (
        "loop", "sasl_plain_username", "sasl_plain_password", "sasl_mechanism",
    ),
    "aiokafka.conn:ScramAuthenticator.step": ("payload",),
    "aiokafka.conn:SaslGSSAPIAuthenticator": ("loop", "principal"),
    "aiokafka.conn:SaslGSSAPIAuthenticator.step": ("payload",),
    "aiokafka.conn:collect_hosts": ("hosts",),
    "aiokafka.protocol.api:RequestStruct.build_request_header": ("correlation_id", "client_id"),
    "aiokafka.protocol.api:RequestStruct.parse_response_header": ("read_buffer",),
    "aiokafka.record.util:calc_crc32c": (),
    "aiokafka.record.default_records:DefaultRecordBatchBuilder.append": (),
    "aiokafka.record.default_records:DefaultRecordBatchBuilder.build": (),
    "aiokafka.codec:lz4_encode": ("payload", "level"),
    "aiokafka.codec:zstd_encode": ("payload", "level"),
    "aiokafka.codec:gzip_encode": ("payload",),
    "aiokafka.codec:snappy_encode": ("payload",),
    "aiokafka.record.memory_records:MemoryRecords.has_next": (),
    "aiokafka.record.memory_records:MemoryRecords.next_batch": (),
    "aiokafka.record.default_records:DefaultRecordBatch.validate_crc": (),
    "aiokafka.coordinator.protocol:ConsumerProtocolMemberMetadata.decode": (),
    "aiokafka.coordinator.protocol:ConsumerProtocolMemberAssignment.decode": (),
}  # fmt: skip


@cache
def check_aiokafka() -> None:
    """Check the attributes and parameters in use, since an import does not check them.

    Raises ConfigError that names the difference.
    """
    version = aiokafka.__version__
    for place, parameters in _TOUCHED.items():
        module, _, path = place.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for name in path.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"aiokafka {version} has no {module}.{path}; {_REMEDY}") from error
        missing = [name for name in parameters if name not in inspect.signature(found).parameters]
        if missing:
            raise ConfigError(
                f"{module}.{path} of aiokafka {version} takes no {', '.join(missing)}; {_REMEDY}"
            )
