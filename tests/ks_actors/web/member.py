"""One more instance of the visits on a Kafka, in a process of its own, to be killed: python -m tests.ks_actors.web.member BOOTSTRAP DIRECTORY."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ks_actors.log import open_log
from tests.ks_actors.web.helpers import Visits, visiting
from tests.waiting import SESSION_MS


async def main() -> None:
    """Run until it is killed."""
    bootstrap, directory = sys.argv[1:]
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    await visiting(log, Path(directory), Visits(), "site-b", session_timeout_ms=SESSION_MS).run()


if __name__ == "__main__":
    asyncio.run(main())
