"""The checkpoint file: the offsets of a closed task, in Kafka Streams' format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import StateFull, TaskCorrupted
from ks_actors.lifecycle import component_log
from ks_actors.state.disk._rocksdb_errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_log = component_log(__name__)
NAME: Final = ".checkpoint"
VERSION: Final = "0"


def write_checkpoint(directory: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write the next offset of each changelog partition, atomically.

    Without any offset, delete the file. Raises StateFull, or StateError.
    """
    path = directory / NAME
    lines = [
        VERSION,
        str(len(offsets)),
        *(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()),
    ]
    draft = Path(f"{path}.tmp")
    try:
        if not offsets:
            path.unlink(missing_ok=True)
            return
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(path)
    except OSError as error:
        refuse(error, f"the checkpoint file {path}")


def read_checkpoint(directory: Path) -> dict[tuple[str, int], int]:
    """Return the next offset by topic and partition; empty without a file.

    Negative offsets are left out: Kafka Streams writes -4 for an unknown one. The offsets are for
    assignment, and as old as the last clean close. An open task uses its stores' own offsets.
    Raises TaskCorrupted, and StateError for a file that must not be read.
    """
    path = directory / NAME
    try:
        return {
            partition: offset for partition, offset in read_offsets(path).items() if offset >= 0
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        refuse(error, f"the checkpoint file {path}")
    except ValueError as error:
        raise TaskCorrupted(
            f"{path} is not a checkpoint file: {error}; the task is deleted and restored"
        ) from error


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Return the offsets by topic and partition from a file in this format.

    Raises ValueError for a file in another format.
    """
    version, count, *lines = path.read_text().splitlines()
    rows = [line.split() for line in lines]
    offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    if version != VERSION or len(offsets) != int(count):
        raise ValueError(f"version {version}, {len(offsets)} of {count} entries")
    return offsets


@final
class CheckpointFile:
    """The checkpoint file of one task.

    It is written on opening and closing, for assignment. It is also written at commits if a store
    does not know its offset (KIP-892).
    """

    def __init__(self, task: str, directory: Path | None, topics: Mapping[str, str]) -> None:
        number = task.rpartition("_")[2]
        self._number: int = int(number) if number.isdecimal() else 0
        self._directory: Path | None = directory
        self._topics: Mapping[str, str] = topics
        # Whether `read` has found no file, and none was written since.
        self._absent: bool = False

    def partition(self, store: str) -> tuple[str, int]:
        """Return the changelog partition of a store."""
        return (self._topics.get(store, store), self._number)

    def read(self, *, there: bool = True) -> dict[tuple[str, int], int]:
        """Return the contents; delete an unreadable file.

        Databases still know their own offsets then, and other stores are restored. With `there`
        False, the file is known to be missing.
        """
        self._absent = not there
        if self._directory is None or not there:
            return {}
        try:
            return read_checkpoint(self._directory)
        except TaskCorrupted as error:
            _log.warning(
                "the file is removed, and stores without stored offsets are restored: %s", error
            )
            (self._directory / NAME).unlink()
            return {}

    def retain(self, stores: Iterable[str]) -> None:
        """Remove the offsets of all stores but these."""
        if self._directory is not None:
            kept = {self.partition(name) for name in stores}
            write_checkpoint(
                self._directory,
                {
                    partition: offset
                    for partition, offset in self.read().items()
                    if partition in kept
                },
            )

    def forget(self, store: str) -> None:
        """Remove the offset of a store, before its state is deleted.

        On a full disk, remove the whole file: an offset must not outlive its state.
        """
        if self._directory is None:
            return
        offsets = self.read()
        if offsets.pop(self.partition(store), None) is None:
            return
        try:
            write_checkpoint(self._directory, offsets)
        except StateFull as error:
            _log.warning(
                "the file is removed, and stores without stored offsets are restored: %s", error
            )
            write_checkpoint(self._directory, {})

    def write(self, written: Mapping[str, int], lost: Callable[[str], bool]) -> None:
        """Write the offsets that the stores have on disk, except those of `lost` stores."""
        offsets = {
            self.partition(name): offset for name, offset in written.items() if not lost(name)
        }
        if (
            self._directory is not None
            and not (self._absent and not offsets)
            and self._directory.exists()
        ):
            write_checkpoint(self._directory, offsets)
            self._absent = not offsets
