"""Parts of a login that need no connection: keys, certificates, and tokens of clouds."""

from ks_actors.log.kafka.login._keys import StoreType, load_identity, load_trusted
from ks_actors.log.kafka.login._msk import MskTokens
from ks_actors.log.kafka.login._token import Token, TokenProvider

__all__ = [
    "MskTokens",
    "StoreType",
    "Token",
    "TokenProvider",
    "load_identity",
    "load_trusted",
]
