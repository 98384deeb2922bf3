"""Checks of names."""

from __future__ import annotations

import re
from typing import Any

from ks_actors._errors import TopologyError

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_NAME = 249


def valid_name(name: Any) -> str:
    """Return a valid name of a node, a store or part of a topic; raise TopologyError otherwise."""
    if (
        not isinstance(name, str)
        or name in (".", "..")
        or len(name) > _LONGEST_NAME
        or not _NAME.fullmatch(name)
    ):
        raise TopologyError(
            f"{name!r} is not a valid name: use 1 to {_LONGEST_NAME} ASCII letters, digits, '.', "
            "'_' and '-', and neither '.' nor '..' alone"
        )
    return name


def valid_topic(topic: Any, of: str) -> str:
    """Return the name of a topic.

    Raises TopologyError if a broker would refuse it; `of` is the node or operation that the error
    names.
    """
    if (
        not isinstance(topic, str)
        or topic in (".", "..")
        or len(topic) > _LONGEST_NAME
        or not _NAME.fullmatch(topic)
    ):
        raise TopologyError(
            f"{topic!r} of {of} is not a valid topic name: use 1 to {_LONGEST_NAME} ASCII letters, "
            "digits, '.', '_' and '-', and neither '.' nor '..' alone"
        )
    return topic


def checked_topics(topics: Any, of: str) -> tuple[str, ...] | re.Pattern[str]:
    """Return the topics that a node reads, or the pattern of their names.

    Raises TopologyError if it is neither, or names no topic.
    """
    if isinstance(topics, re.Pattern):
        if not isinstance(topics.pattern, str):
            raise TopologyError(
                f"the pattern {topics.pattern!r} of {of} is of bytes: compile one of str"
            )
        return topics
    if isinstance(topics, str):
        return (valid_topic(topics, of),)
    try:
        names = tuple(topics)
    except TypeError:
        raise TopologyError(
            f"topics of {of} are {topics!r}: give a name, names, or a compiled pattern"
        ) from None
    if not names:
        raise TopologyError(f"{of} reads no topic: name at least one")
    return tuple(valid_topic(name, of) for name in names)
