"""The file with the ids of the topics from which a task's state was made (KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from ks_actors.lifecycle import component_log
from ks_actors.state.disk._rocksdb_errors import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_log = component_log(__name__)
TOPIC_IDS: Final = ".topics"
"""The name of the file."""

VERSION: Final = 1


class _File(msgspec.Struct):
    version: int
    ids: dict[str, str]


_read = msgspec.json.Decoder(_File).decode


@final
class TopicIds:
    """The ids of the topics that a task's state on disk was made from.

    A topic that was deleted and created again has another id, and so has a topic of the same name
    in another cluster. Offsets of the old topic mean nothing in the new topic, even if the offsets
    exist there. `filled_from` has the topic of each store on disk that is filled from a topic.
    `ids` are the present ids by topic, without unknown ids. State of an earlier version has no such
    file, and is trusted. All methods block.
    """

    def __init__(
        self,
        task: str,
        directory: Path | None,
        filled_from: Mapping[str, str],
        ids: Mapping[str, str],
    ) -> None:
        self._task: str = task
        self._directory: Path | None = directory
        self._filled_from: Mapping[str, str] = filled_from
        self._ids: Mapping[str, str] = ids
        self._known: dict[str, str] = {}
        self.others: frozenset[str] = frozenset()
        """The topics that had other ids when the file was read."""

    def read(self, *, there: bool = True) -> dict[str, str]:
        """Return the stores that were filled from other topics than the present ones, with reasons.

        With `there` False, the file is known to be missing. Raises StateError for a file that must
        not be read.
        """
        self._known, self.others = {}, frozenset()
        if self._directory is None or not there:
            return {}
        path = self._directory / TOPIC_IDS
        try:
            self._known = _parsed(path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            refuse(error, f"task {self._task}: the file of topic ids {path}")
        except ValueError as error:
            _log.warning(
                "task %s: %s is not a file of topic ids, and is written again; at this start "
                "stores are not compared with the topics from which they were made: %s",
                self._task,
                path,
                error,
            )
        self.others = frozenset(
            topic for topic, known in self._known.items() if self._ids.get(topic, known) != known
        )
        return {
            store: (
                f"it was made from a topic {topic} with id {self._known[topic]}; the topic of that "
                f"name has id {self._ids[topic]} now: it was deleted and created again, or is in "
                "another cluster"
            )
            for store, topic in self._filled_from.items()
            if topic in self.others
        }

    def write(self) -> None:
        """Write the present ids, if the file does not have them yet.

        Call it when no state from other topics is left. Raises StateFull, or StateError.
        """
        ids = dict(sorted(self._ids.items()))
        if ids == self._known or self._directory is None or not self._directory.is_dir():
            return
        path = self._directory / TOPIC_IDS
        draft = self._directory / f"{TOPIC_IDS}.tmp"
        try:
            draft.write_bytes(msgspec.json.encode(_File(VERSION, ids)))
            draft.replace(path)
        except OSError as error:
            refuse(error, f"task {self._task}: the file of topic ids {path}")
        self._known = ids


def _parsed(data: bytes) -> dict[str, str]:
    """Return the ids by topic. Raises ValueError for another format."""
    found = _read(data)
    if found.version != VERSION:
        raise ValueError(f"it has version {found.version}, expected {VERSION}")
    return found.ids
