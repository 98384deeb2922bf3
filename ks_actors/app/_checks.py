"""Checks of the App's arguments besides topology and config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ks_actors._errors import TopologyError
from ks_actors.processors.api import check_function, check_kind, check_whole
from ks_actors.runtime.shared import RestoreListener, StandbyUpdateListener
from ks_actors.task import Planning

# The message of errors about an app that has yet to be started.
NOT_STARTED: Final = "the app has not been started: enter `async with app`, or await `app.start()`"


def check_topics(topics: Any) -> None:
    """Raise TopologyError unless the value is None, or partition counts by topic name."""
    if topics is None:
        return
    check_kind(
        topics,
        Mapping,
        role="argument 'topics'",
        of="App",
        remedy='give a dict of names to numbers of partitions, such as {"in": 4}',
    )
    for name, count in topics.items():
        check_kind(name, str, role="a name in argument 'topics'", of="App", remedy="give a str")
        check_whole(
            count,
            role=f"the number of partitions of topic {name} in argument 'topics'",
            of="App",
            least=1,
        )


def check_log(log: Any) -> None:
    """Raise TopologyError unless this is a Log or None."""
    made = not isinstance(log, type) and callable(getattr(log, "describe_topics", None))
    if log is not None and not made:
        raise TopologyError(
            f"argument 'log' of App is {log!r}: give a Log; open_log(url) makes one, or name its "
            "URL in the config, StreamsConfig(log=url)"
        )


def check_callbacks(*, on_state: Any, uncaught_handler: Any, task_priority: Any) -> None:
    """Raise TopologyError for a callback that does not take the app's arguments."""
    check_function(uncaught_handler, 1, role="argument 'uncaught_handler'", of="App", awaited=True)
    for role, function, count in (("on_state", on_state, 2), ("task_priority", task_priority, 1)):
        if function is not None:
            check_function(function, count, role=f"argument {role!r}", of="App")


def check_planning(assignor: Any, grouper: Any) -> Planning:
    """Return the user's parts in the assignment; raise TopologyError if these are others."""
    for role, part, kind, count in (
        ("assignor", assignor, "assign", 1),
        ("grouper", grouper, "group", 2),
    ):
        if part is None:
            continue
        method = None if isinstance(part, type) else getattr(part, kind, None)
        if not callable(method):
            raise TopologyError(
                f"argument {role!r} of App is {part!r}, which has no method {kind}: give "
                f"{'a TaskAssignor' if role == 'assignor' else 'a PartitionGrouper'}"
            )
        check_function(method, count, role=f"method {kind} of argument {role!r}", of="App")
    name = getattr(grouper, "name", None)
    if grouper is not None and not (isinstance(name, str) and name):
        raise TopologyError(
            f"argument 'grouper' of App has the name {name!r}: members compare the names of their "
            "groupers, so give it a text"
        )
    return Planning(assignor, grouper)


def check_tracing(tracing: Any) -> None:
    """Raise TopologyError unless this is a Tracing or None."""
    if tracing is not None and not callable(getattr(tracing, "task", None)):
        raise TopologyError(
            f"argument 'tracing' of App is {tracing!r}: give a Tracing, such as "
            "OtelTracing(tracer_provider)"
        )


def check_listeners(*, restore_listener: Any, standby_listener: Any) -> None:
    """Raise TopologyError unless listeners have all methods of their protocols, none async."""
    _check_listener(restore_listener, RestoreListener, "restore_listener")
    _check_listener(standby_listener, StandbyUpdateListener, "standby_listener")


def _check_listener(listener: Any, kind: type[Any], role: str) -> None:
    if listener is None:
        return
    for name in sorted(name for name in vars(kind) if name.startswith("on_")):
        method = getattr(listener, name, None)
        if not callable(method):
            raise TopologyError(
                f"argument {role!r} of App is {listener!r}, which has no method {name}: give a "
                f"{kind.__name__}"
            )
        check_function(
            method, _arguments(kind, name), role=f"method {name} of argument {role!r}", of="App"
        )


def _arguments(kind: type[Any], name: str) -> int:
    """Return the number of arguments that a method is called with."""
    code = getattr(kind, name).__code__
    count: int = code.co_argcount
    return count - 1
