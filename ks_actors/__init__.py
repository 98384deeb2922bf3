"""Stream processing with Kafka Streams' semantics, on actors.

The runtime is under construction: of it there is only `TaskId` so far. The framework that it stands on is the package `actors`.
"""

from importlib.metadata import version

from ks_actors._task_id import TaskId

__all__ = ["TaskId", "__version__"]

__version__: str = version("ks-actors")
"""The version of the installed distribution."""
