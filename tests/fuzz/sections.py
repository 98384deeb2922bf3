"""The sections that are fuzzed: for each a function that does one session with random numbers, and raises where the kernel differs from Python."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.fuzz import acting, batches, columns, counts, restored, rows, stores, writing

SECTIONS: Final[dict[str, Callable[[Random], None]]] = {
    "batches": batches.session,
    "rows": rows.session,
    "restored": restored.session,
    "counts": counts.session,
    "stores": stores.session,
    "columns": columns.session,
    "writing": writing.session,
    "acting": acting.session,
}


def play(section: str, seed: int) -> None:
    """Do the session that a section has for a seed: always the same one."""
    SECTIONS[section](Random(f"{section}:{seed}"))
