"""Reading stores from outside of processors: typed requests, positions and results."""

from ks_actors._errors import FailureReason
from ks_actors.query._position import Position, PositionBound
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
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from ks_actors.query._results import LagInfo, QueryResult, StateQueryResult
from ks_actors.query._scan import StoreScan
from ks_actors.query._serve import StoreEndpoint
from ks_actors.query._store import StoreQueries

__all__ = [
    "FailureReason",
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
    "TimestampedRangeQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
]
