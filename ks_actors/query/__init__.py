"""Queries of stores from outside of processors: typed requests, positions and results."""

from typing import TYPE_CHECKING

from ks_actors._errors import FailureReason
from ks_actors.system import taken_from

if TYPE_CHECKING:
    from ks_actors.query._execute import answer as answer
    from ks_actors.query._execute import lags as lags
    from ks_actors.query._local import LocalStores as LocalStores
    from ks_actors.query._position import Position, PositionBound
    from ks_actors.query._reach import How as How
    from ks_actors.query._reach import LocalReach as LocalReach
    from ks_actors.query._requests import (
        KeyQuery,
        MultiVersionedKeyQuery,
        PrefixQuery,
        Query,
        RangeQuery,
        SessionKeyQuery,
        SessionRangeQuery,
        StateQueryRequest,
        TimestampedKeyQuery,
        TimestampedKeyWithHeadersQuery,
        TimestampedRangeQuery,
        TimestampedRangeWithHeadersQuery,
        TimestampedWindowKeyWithHeadersQuery,
        TimestampedWindowRangeWithHeadersQuery,
        VersionedKeyQuery,
        WindowKeyQuery,
        WindowRangeQuery,
    )
    from ks_actors.query._results import LagInfo, QueryResult, StateQueryResult
    from ks_actors.query._scan import StoreScan
    from ks_actors.query._serve import StoreEndpoint
    from ks_actors.query._serve import serve as serve
    from ks_actors.query._store import StoreQueries
    from ks_actors.query._wire import LENGTH as LENGTH
    from ks_actors.query._wire import MOST_BYTES as MOST_BYTES
    from ks_actors.query._wire import Describe as Describe
    from ks_actors.query._wire import Described as Described
    from ks_actors.query._wire import End as End
    from ks_actors.query._wire import Hello as Hello
    from ks_actors.query._wire import ReadRows as ReadRows
    from ks_actors.query._wire import Refused as Refused
    from ks_actors.query._wire import Reply as Reply
    from ks_actors.query._wire import Request as Request
    from ks_actors.query._wire import SomeRows as SomeRows
    from ks_actors.query._wire import Welcome as Welcome
    from ks_actors.query._wire import decode_reply as decode_reply
    from ks_actors.query._wire import encode as encode
    from ks_actors.query.remote import Client, Endpoint, InstanceEndpoint, KeyOwner
else:
    __getattr__ = taken_from(
        __name__,
        (
            "_position",
            "_local",
            "_requests",
            "_results",
            "_scan",
            "_reach",
            "_store",
            "_execute",
            "_wire",
            "_serve",
            "remote",
        ),
        others=(
            "LENGTH",
            "MOST_BYTES",
            "Describe",
            "Described",
            "End",
            "Hello",
            "How",
            "LocalReach",
            "LocalStores",
            "ReadRows",
            "Refused",
            "Reply",
            "Request",
            "SomeRows",
            "Welcome",
            "answer",
            "decode_reply",
            "encode",
            "lags",
            "serve",
        ),
    )

__all__ = [
    "Client",
    "Endpoint",
    "FailureReason",
    "InstanceEndpoint",
    "KeyOwner",
    "KeyQuery",
    "LagInfo",
    "MultiVersionedKeyQuery",
    "Position",
    "PositionBound",
    "PrefixQuery",
    "Query",
    "QueryResult",
    "RangeQuery",
    "SessionKeyQuery",
    "SessionRangeQuery",
    "StateQueryRequest",
    "StateQueryResult",
    "StoreEndpoint",
    "StoreQueries",
    "StoreScan",
    "TimestampedKeyQuery",
    "TimestampedKeyWithHeadersQuery",
    "TimestampedRangeQuery",
    "TimestampedRangeWithHeadersQuery",
    "TimestampedWindowKeyWithHeadersQuery",
    "TimestampedWindowRangeWithHeadersQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
]
