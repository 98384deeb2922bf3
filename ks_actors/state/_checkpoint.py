"""The file in which a closed task says how far it has come, in Kafka Streams' format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ks_actors._errors import TaskCorrupted

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = ".checkpoint"
VERSION: Final = "0"


def write_checkpoint(directory: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write the next offset of each changelog partition, in one go; without any, delete the file."""
    path = directory / NAME
    if not offsets:
        path.unlink(missing_ok=True)
        return
    lines = [VERSION, str(len(offsets)), *(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())]
    draft = Path(f"{path}.tmp")
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(path)


def read_checkpoint(directory: Path) -> dict[tuple[str, int], int]:
    """Return the next offset by topic and partition, nothing when there is no file; raises TaskCorrupted.

    For assignment: it is as old as the last clean close. A task that is open takes what its stores hold.
    """
    path = directory / NAME
    if not path.exists():
        return {}
    try:
        version, count, *lines = path.read_text().splitlines()
        rows = [line.split() for line in lines]
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
        if version != VERSION or len(offsets) != int(count):
            raise ValueError(f"version {version}, {len(offsets)} of {count} entries")
    except ValueError as error:
        raise TaskCorrupted(f"{path} is no checkpoint file: {error}; the task is to be wiped and restored") from error
    return offsets
