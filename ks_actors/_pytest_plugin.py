"""The pytest plugin: fixtures `topology_driver` and `app_harness`.

It imports little: pytest loads it for all tests of an environment.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from actors.testing.plugin import in_loop_of_test

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from ks_actors import StreamsBuilder, StreamsConfig, Topology
    from ks_actors.testing import AppHarness, TopologyTestDriver


@pytest.fixture
def topology_driver() -> Iterator[Callable[..., TopologyTestDriver]]:
    """Return a function that opens a TopologyTestDriver, which is closed after the test."""
    from ks_actors.testing import TopologyTestDriver  # noqa: PLC0415 - only where it is used

    with ExitStack() as stack:

        def opened(
            topology: Topology | StreamsBuilder,
            config: StreamsConfig | Mapping[str, Any] | str | None = None,
            **options: Any,
        ) -> TopologyTestDriver:
            return stack.enter_context(TopologyTestDriver(topology, config, **options))

        yield opened


async def _harnesses(seed: int) -> AsyncIterator[Callable[..., Awaitable[AppHarness]]]:
    """Return an async function that starts an AppHarness, which is closed after the test.

    The test runs in virtual time. The seed of the harness is that of this run.
    """
    from ks_actors.testing import AppHarness  # noqa: PLC0415 - only where it is used

    async with AsyncExitStack() as stack:

        async def started(
            topology: Topology | StreamsBuilder,
            config: StreamsConfig | Mapping[str, Any] | str | None = None,
            **options: Any,
        ) -> AppHarness:
            chosen: dict[str, Any] = {"seed": seed, **options}
            harness = AppHarness(topology, config, **chosen)
            return await stack.enter_async_context(harness)

        yield started


globals().update(in_loop_of_test("app_harness", _harnesses))
