"""The times at which a task acts without a record: punctuation, and closes of idle windows."""

from ks_actors.task.times._idle_nodes import IdleNodes
from ks_actors.task.times._punctuation import BACK_MS, PunctuationQueue, Schedule

__all__ = ["BACK_MS", "IdleNodes", "PunctuationQueue", "Schedule"]
