"""Conversations with a broker, real or simulated, each about one of its parts."""

from __future__ import annotations

from typing import Final

from tests.simulation.conversations.groups import of_followers, of_groups, of_offsets_of_members, of_static_members, of_wrong_members
from tests.simulation.conversations.records import of_deleted_records, of_fetches, of_leader_epochs, of_sessions, of_times, of_writes, of_wrong_writes
from tests.simulation.conversations.talk import Asks, Talk
from tests.simulation.conversations.topics import of_configs, of_identities, of_topics, of_wrong_topics
from tests.simulation.conversations.transactions import of_aborted_ranges, of_fencing, of_offsets, of_strangers, of_transactions

__all__ = ["CONVERSATIONS", "Asks", "Talk"]

CONVERSATIONS: Final = (
    of_identities,
    of_topics,
    of_configs,
    of_wrong_topics,
    of_writes,
    of_wrong_writes,
    of_fetches,
    of_sessions,
    of_deleted_records,
    of_leader_epochs,
    of_times,
    of_transactions,
    of_aborted_ranges,
    of_fencing,
    of_strangers,
    of_offsets,
    of_groups,
    of_followers,
    of_static_members,
    of_wrong_members,
    of_offsets_of_members,
)
