"""Times of a task: punctuation, closes of idle windows, and the length of a run."""

from ks_actors.task.times._idle_nodes import IdleNodes
from ks_actors.task.times._punctuation import BACK_MS, PunctuationQueue, Schedule
from ks_actors.task.times._run_length import RunLength

__all__ = ["BACK_MS", "IdleNodes", "PunctuationQueue", "RunLength", "Schedule"]
