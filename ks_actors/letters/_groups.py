"""Dead letters by error and source."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from ks_actors.letters._letter import Letter

if TYPE_CHECKING:
    from ks_actors.records import TopicPartition


class LetterGroup(msgspec.Struct, kw_only=True):
    """The letters of a topic with one class of error and one source topic.

    `message` is that of the newest of them. `first_ms` and `last_ms` are the lowest and the highest
    timestamp of the failed records. `redriven` of the `count` letters were written back.
    `failed_first_ms` and `failed_last_ms` are the times of the first and the last such failure in
    this process; None if there was none.
    """

    topic: str
    exception: str | None
    source: str | None
    message: str | None = None
    count: int = 0
    redriven: int = 0
    first_ms: int = 0
    last_ms: int = 0
    failed_first_ms: int | None = None
    failed_last_ms: int | None = None


class Survey(msgspec.Struct, frozen=True):
    """The newest letters of a topic, and the groups of all that were counted, the largest first.

    Letters were counted from the offset in `starts` to that in `ends` of each partition. `whole`:
    all letters of the topic were counted. `read_to` are the end offsets of the topic at that time.
    """

    letters: list[Letter]
    groups: list[LetterGroup]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    read_to: tuple[int, ...]
    whole: bool


def source_topic(letter: Letter) -> str | None:
    """Return the topic of the failed record, None when unknown."""
    return None if letter.source is None else letter.source.topic


@final
class LetterGroups:
    """Count letters by error and source, in any order."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str | None, str | None], LetterGroup] = {}
        self._of: dict[tuple[TopicPartition, int], LetterGroup] = {}
        # Markers whose letters have not been counted yet.
        self._marked: set[tuple[TopicPartition, int]] = set()
        # The offset of the letter that a group's message is from.
        self._newest: dict[int, int] = {}

    def add(self, letter: Letter) -> None:
        """Count a letter."""
        key = letter.exception, source_topic(letter)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = LetterGroup(
                topic=letter.topic, exception=key[0], source=key[1], first_ms=letter.timestamp
            )
        if letter.offset > self._newest.get(id(group), -1):
            self._newest[id(group)] = letter.offset
            group.message = letter.message
        group.count += 1
        group.first_ms = min(group.first_ms, letter.timestamp)
        group.last_ms = max(group.last_ms, letter.timestamp)
        if (where := (letter.place, letter.offset)) in self._marked:
            group.redriven += 1
        else:
            self._of[where] = group

    def mark(self, place: TopicPartition, offset: int) -> None:
        """Count a letter as written back, once, if it was or will be counted at all."""
        group = self._of.pop((place, offset), None)
        if group is None:
            self._marked.add((place, offset))
        else:
            group.redriven += 1

    def found(self) -> list[LetterGroup]:
        """Return all groups, that with the most letters left first."""
        return sorted(self._groups.values(), key=lambda one: one.redriven - one.count)


@final
class ChosenGroup:
    """Note the letters of one group that can be written back, in the order of their offsets."""

    def __init__(self, topic: str, exception: str | None, source: str) -> None:
        self.topic: str = topic
        self._group = exception, source
        self.left: dict[tuple[TopicPartition, int], None] = {}
        """The partition and the offset of each letter."""

    def add(self, letter: Letter) -> None:
        """Note a letter, if it is of the group."""
        if (letter.exception, source_topic(letter)) == self._group:
            self.left[letter.place, letter.offset] = None

    def mark(self, place: TopicPartition, offset: int) -> None:
        """Forget a letter that was written back."""
        self.left.pop((place, offset), None)
