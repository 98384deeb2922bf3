"""The version, and whether the kernel in C is available."""

from __future__ import annotations

from typing import Final

from ks_actors import __version__
from ks_actors.kernel import missing

VERSION: Final = f"ks-actors, version {__version__}" + (
    f", without its C kernel, which is slower: {missing}" if missing else ""
)
