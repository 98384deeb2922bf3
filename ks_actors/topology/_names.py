"""What can be a name."""

from __future__ import annotations

import re

from ks_actors._errors import TopologyError

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_NAME = 249


def valid_name(name: str) -> str:
    """Return a name that can be a node's, a store's or part of a topic's; raise TopologyError if it cannot."""
    if name in (".", "..") or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise TopologyError(
            f"{name!r} cannot be a name: take 1 to {_LONGEST_NAME} ASCII letters, digits, '.', '_' and '-', and neither '.' nor '..' alone"
        )
    return name
