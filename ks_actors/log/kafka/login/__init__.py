"""Parts of a login that require no connection: keys, tokens of clouds, and texts of failures."""

from ks_actors.log.kafka.login._failures import Step, is_alert, told, why_failed
from ks_actors.log.kafka.login._kerberos import check_kerberos, kerberos_steps
from ks_actors.log.kafka.login._keys import StoreType, load_identity, load_trusted
from ks_actors.log.kafka.login._msk import MskTokens
from ks_actors.log.kafka.login._token import Token, TokenProvider

__all__ = [
    "MskTokens",
    "Step",
    "StoreType",
    "Token",
    "TokenProvider",
    "check_kerberos",
    "is_alert",
    "kerberos_steps",
    "load_identity",
    "load_trusted",
    "told",
    "why_failed",
]
