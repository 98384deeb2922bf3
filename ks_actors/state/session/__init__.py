"""Session stores."""

from ks_actors.state.session._reader import SessionReader
from ks_actors.state.session._store import SessionStore
from ks_actors.state.session._with_headers import AggregationWithHeaders, SessionStoreWithHeaders

__all__ = [
    "AggregationWithHeaders",
    "SessionReader",
    "SessionStore",
    "SessionStoreWithHeaders",
]
