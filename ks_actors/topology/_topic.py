"""A topic with its types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from ks_actors._errors import TopologyError
from ks_actors.processors.api import check_function, check_offset_reset, takes_headers
from ks_actors.serdes import is_same, serde_of
from ks_actors.topology._names import valid_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import TypeVar

    from ks_actors.serdes import Serde, SerdeOrType
    from ks_actors.topology._nodes import OffsetReset, Partitioner, TimestampExtractor

    # The types of a serde that is not given. Defaults need Python 3.13 when the program runs.
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

N = TypeVar("N")


@dataclass(frozen=True, init=False)
class Topic(Generic[K, V]):
    """A topic: its name, and the serdes of its keys and values, said once.

    Use it in place of a topic's name, wherever you read or write the topic: its options apply
    there, unless others are given explicitly. `key` and `value` are serdes, or types, as
    `Topic("orders", str, Order)`; a missing serde is the app's default. `timestamp_extractor` and
    `offset_reset` are for reading, as in `Consumed`; `partitioner` is for writing, as in
    `Produced`. A global table reads the whole topic, whatever its `offset_reset`. A topology may
    not use two Topics of one name with different serdes. Raises TopologyError for a name that Kafka
    does not allow, and for what is no serde.
    """

    name: str
    key: Serde[K] | None
    value: Serde[V] | None
    timestamp_extractor: TimestampExtractor | None
    offset_reset: OffsetReset | None
    partitioner: Partitioner | None

    def __init__(
        self,
        name: str,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        *,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        of = f"Topic {name!r}"
        valid_topic(name, "Topic")
        if timestamp_extractor is not None:
            check_function(timestamp_extractor, 2, role="timestamp_extractor", of=of)
        check_offset_reset(offset_reset, of=of)
        takes_headers(partitioner, of)
        fields = {
            "name": name,
            "key": serde_of(key, role="key", of=of),
            "value": serde_of(value, role="value", of=of),
            "timestamp_extractor": timestamp_extractor,
            "offset_reset": offset_reset,
            "partitioner": partitioner,
        }
        for field, value_ in fields.items():
            object.__setattr__(self, field, value_)

    def __str__(self) -> str:
        """Return the name."""
        return self.name


TopicOrName: TypeAlias = str | Topic[Any, Any]
"""The name of a topic, or the topic with its types."""

ByTopic: TypeAlias = Mapping[Any, N]
"""A value for each topic, by name or Topic. Keys are Any: the keys of a Mapping are invariant."""


def topic_name(topic: Any) -> Any:
    """Return the name of a topic; anything else, such as a name, as it is."""
    return topic.name if isinstance(topic, Topic) else topic


def by_name(topics: Any) -> Any:
    """Return a mapping with the names of topics as keys; anything else as it is."""
    if not isinstance(topics, Mapping):
        return topics
    return {topic_name(topic): each for topic, each in topics.items()}


def with_topic(topics: Any, of: str, **given: Any) -> tuple[Any, dict[str, Any]]:
    """Return the names of one topic or several, and the options for their place.

    Options that are `given` override those of the topics. Raises TopologyError if the options of
    several topics differ.
    """
    found = topics_of(topics)
    options = dict(given)
    for role in (role for role, option in given.items() if option is None):
        each = [getattr(topic, role) for topic in found]
        if not all(is_same(each[0], other) for other in each):
            raise TopologyError(
                f"{of} reads topics {', '.join(topic.name for topic in found)}, and their {role} "
                "differs: read them one by one and merge the streams"
            )
        options[role] = each[0] if each else None
    names = [topic_name(each) for each in topics] if isinstance(topics, list | tuple) else topics
    return topic_name(names), options


def topics_of(topics: Any) -> list[Topic[Any, Any]]:
    """Return the Topics among one topic or several, without mere names."""
    several = topics if isinstance(topics, list | tuple) else (topics,)
    return [each for each in several if isinstance(each, Topic)]


def note_topics(known: dict[str, Topic[Any, Any]], topics: Sequence[Topic[Any, Any]]) -> None:
    """Add topics to those that are `known`, by name.

    Raises TopologyError for a topic that is known with another serde.
    """
    for topic in topics:
        other = known.get(topic.name, topic)
        for role in ("key", "value"):
            one, two = getattr(other, role), getattr(topic, role)
            if not is_same(one, two):
                raise TopologyError(
                    f"two Topics {topic.name!r} have different serdes: their {role} is {one!r} and "
                    f"{two!r}; make one Topic, and give it wherever the topic is read or written"
                )
    known.update((topic.name, topic) for topic in topics)
