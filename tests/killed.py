"""Processes that are killed in the middle of their work."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping


async def killed(
    *command: str, when: int | Callable[[str], bool], seconds: float = 0, may_end: bool = False, env: Mapping[str, str] | None = None
) -> list[str]:
    """Run Python, kill it some seconds after a line that it prints, and return its whole lines; with `may_end` it may end by itself before.

    Lines are its own progress: what happens before the kill does not depend on how fast the machine is. `when` is the number of lines, or tells the
    line that counts.
    """
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE, env=env)
    assert process.stdout is not None
    ended = asyncio.ensure_future(process.wait())
    told: list[str] = []
    try:
        while not (len(told) >= when if isinstance(when, int) else told and when(told[-1])) and (line := await process.stdout.readline()):
            told.append(line.decode())
        await asyncio.wait([ended], timeout=seconds)
    finally:
        if not ended.done():
            process.kill()
    told += (await process.stdout.read()).decode().splitlines(keepends=True)
    assert await ended in ({0, -signal.SIGKILL} if may_end else {-signal.SIGKILL})
    # The last line may be cut.
    return [line[:-1] for line in told if line.endswith("\n")]
