"""The kernel's count of processes that it has killed for lack of memory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator

_CGROUPS: Final = Path("/proc/self/cgroup")
_MOUNTED: Final = Path("/sys/fs/cgroup")
# Members that the kernel kills at nearly the same time end within this time.
_CLAIMABLE_S: Final = 5.0


@final
class OomKills:
    """The count in the control group of this process, of both versions of control groups.

    In a container the path of the group may be that of the host; the group is then mounted in the
    place of the root.
    """

    def __init__(self, groups: Path = _CGROUPS, mounted: Path = _MOUNTED) -> None:
        self._files: tuple[Path, ...] = tuple(_files(groups, mounted))
        self._count: int | None = self._read()
        self._unclaimed = 0
        self._until = 0.0

    def claim(self) -> bool | None:
        """Return whether there is a kill that nobody has claimed, and claim it.

        None if nothing counts. Kills that are not claimed within 5 s were of other processes.
        """
        before, self._count = self._count, self._read()
        if before is None or self._count is None:
            return None
        if monotonic() >= self._until:
            self._unclaimed = 0
        if self._count > before:
            self._unclaimed += self._count - before
            self._until = monotonic() + _CLAIMABLE_S
        if self._unclaimed == 0:
            return False
        self._unclaimed -= 1
        return True

    def _read(self) -> int | None:
        for file in self._files:
            with suppress(OSError):
                for line in file.read_text(encoding="ascii").splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return None


def _files(groups: Path, mounted: Path) -> Iterator[Path]:
    """Yield the files that may have the count, the best one first."""
    try:
        lines = groups.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # another system than Linux
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        version_2 = kinds == ""
        if version_2 or "memory" in kinds.split(","):
            root = mounted if version_2 else mounted / "memory"
            name = "memory.events" if version_2 else "memory.oom_control"
            yield from (root / path.lstrip("/") / name, root / name)
