"""Requests about topics, offsets and groups."""

from ks_actors.log.kafka.admin._admin import Admin
from ks_actors.log.kafka.admin._committed_offsets import (
    commit_offsets,
    fetch_committed,
    fetch_unstable,
    send_offsets,
)
from ks_actors.log.kafka.admin._split_commits import commit_split

__all__ = [
    "Admin",
    "commit_offsets",
    "commit_split",
    "fetch_committed",
    "fetch_unstable",
    "send_offsets",
]
