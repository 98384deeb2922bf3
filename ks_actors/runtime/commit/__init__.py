"""The committer."""

from ks_actors.runtime.commit._changelog_ends import ChangelogEnds
from ks_actors.runtime.commit._committer import COMMITTER_MAILBOX, Committer
from ks_actors.runtime.commit._drains import Drains, DrainsStatus
from ks_actors.runtime.commit._last_calls import let_calls_end
from ks_actors.runtime.commit._states import Phase, TasksBroken, Uncommitted
from ks_actors.runtime.commit._twins import Twins

__all__ = [
    "COMMITTER_MAILBOX",
    "ChangelogEnds",
    "Committer",
    "Drains",
    "DrainsStatus",
    "Phase",
    "TasksBroken",
    "Twins",
    "Uncommitted",
    "let_calls_end",
]
