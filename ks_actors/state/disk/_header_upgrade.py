"""The upgrade of a store on disk to one that keeps headers (KIP-1271)."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from ks_actors.lifecycle import component_log
from ks_actors.records import NO_HEADERS
from ks_actors.state.core import after, pack_time
from ks_actors.state.disk._manifest import MARK

if TYPE_CHECKING:
    from ks_actors.state.core import Engine
    from ks_actors.state.disk._manifest import Manifest, StoreFacts

UNKNOWN: Final = -1
"""The timestamp (ms) for rows of a store without timestamps, as in Kafka Streams."""

SLICE: Final = 1_000
_PLAIN: Final = NO_HEADERS + pack_time(UNKNOWN)
PREFIXES: Final = {
    ("timestamped_key_value", "timestamped_key_value_with_headers"): NO_HEADERS,
    ("timestamped_window", "timestamped_window_with_headers"): NO_HEADERS,
    ("session", "session_with_headers"): NO_HEADERS,
    ("key_value", "timestamped_key_value_with_headers"): _PLAIN,
    ("window", "timestamped_window_with_headers"): _PLAIN,
}
"""The bytes before each row, by old and new kind, as in Kafka Streams (`HeadersBytesStore`)."""

_log = component_log(__name__)


def upgrade(engine: Engine, manifest: Manifest, name: str, wanted: StoreFacts, task: str) -> bool:
    """Give a store's rows empty headers, if that makes them fit; return whether it did. Blocks.

    New rows are written beside the old rows and replace them in one step. So after a crash the
    upgrade begins again. Raises StateFull, and TaskCorrupted when the database has no room for a
    store.
    """
    known = manifest.stores[name]
    added = PREFIXES.get((known.kind, wanted.kind))
    if added is None or manifest.misfit(name, msgspec.structs.replace(wanted, kind=known.kind)):
        return False
    began, draft = time.perf_counter(), name + MARK
    number = manifest.admit(draft, wanted, task)
    old, new = bytes((known.id,)), bytes((number,))
    # Durable: no other store may get the id of existing rows.
    engine.write([manifest.row()], [(new, after(new))], durable=True)
    rows, count = engine.scan(old, after(old)), 0
    while found := list(islice(rows, SLICE)):
        engine.write([(new + key[len(old) :], added + data) for key, data in found])
        count += len(found)
    # The rows must be on disk before they count: their offsets are on disk already.
    engine.flush(wait=True)
    del manifest.stores[draft]
    manifest.stores[name] = msgspec.structs.replace(wanted, id=number)
    engine.write([manifest.row()], [(old, after(old))], durable=True)
    _log.info(
        "task %s: store %s keeps headers now; its %s rows were upgraded in %.1f s",
        task,
        name,
        f"{count:,}",
        time.perf_counter() - began,
    )
    return True
