"""Parts of a login that need no connection: keys and certificates."""

from ks_actors.log.kafka.login._keys import StoreType, load_identity, load_trusted

__all__ = ["StoreType", "load_identity", "load_trusted"]
