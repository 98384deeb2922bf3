"""Queries across instances: their endpoints, the server of each, and callers."""

try:
    from ks_actors.query.remote._caller import Caller as Caller
    from ks_actors.query.remote._client import Client
    from ks_actors.query.remote._everywhere import Everywhere as Everywhere
    from ks_actors.query.remote._places import AppMap as AppMap
    from ks_actors.query.remote._places import Endpoint, InstanceEndpoint, KeyOwner
    from ks_actors.query.remote._places import StoreFacts as StoreFacts
    from ks_actors.query.remote._places import owner_of as owner_of
    from ks_actors.query.remote._rows import Wire as Wire
    from ks_actors.query.remote._server import Here as Here
    from ks_actors.query.remote._server import QueryServer as QueryServer
    from ks_actors.query.remote._tls import server_context as server_context
except ModuleNotFoundError as _missing:
    if _missing.name != "h11":
        raise
    raise ModuleNotFoundError(
        "queries across instances need h11: pip install 'ks-actors[query]'", name="h11"
    ) from _missing

__all__ = ["Client", "Endpoint", "InstanceEndpoint", "KeyOwner"]
