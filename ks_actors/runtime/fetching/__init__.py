"""The poller: fetching the partitions of the running tasks."""

from ks_actors.runtime.fetching._missing_topics import gone_topics, missing_sources
from ks_actors.runtime.fetching._poller import POLLER_MAILBOX, FetchFigures, Poller
from ks_actors.runtime.fetching._start_policy import FROM_BEGIN, StartPolicy

__all__ = [
    "FROM_BEGIN",
    "POLLER_MAILBOX",
    "FetchFigures",
    "Poller",
    "StartPolicy",
    "gone_topics",
    "missing_sources",
]
