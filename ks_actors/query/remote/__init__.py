"""Queries across instances: their endpoints, the server of each, and callers."""

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

__all__ = ["Client", "Endpoint", "InstanceEndpoint", "KeyOwner"]
