"""Requests about topics, offsets and groups."""

from ks_actors.log.kafka.admin._admin import Admin
from ks_actors.log.kafka.admin._committed_offsets import (
    commit_offsets,
    fetch_committed,
    fetch_unstable,
    send_offsets,
)

__all__ = [
    "Admin",
    "commit_offsets",
    "fetch_committed",
    "fetch_unstable",
    "send_offsets",
]
