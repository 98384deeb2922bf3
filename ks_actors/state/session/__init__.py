"""Session stores."""

from ks_actors.state.session._reader import SessionReader
from ks_actors.state.session._store import SessionStore, SessionStoreWithHeaders

__all__ = [
    "SessionReader",
    "SessionStore",
    "SessionStoreWithHeaders",
]
