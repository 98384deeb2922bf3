"""What has to be open while a topology is at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager, AsyncExitStack

    from ks_actors.topology import Topology


async def enter_services(stack: AsyncExitStack, topology: Topology, more: Iterable[AbstractAsyncContextManager[Any]] = ()) -> None:
    """Enter what functions of the topology have as their `service`, and what else there is, each once; in this order."""
    operators = [getattr(node, "operator", None) for node in topology.nodes.values()]
    found = [service for operator in operators if (service := getattr(operator, "service", None)) is not None]
    # By identity: what is equal need not be the same.
    for service in {id(one): one for one in (*found, *more)}.values():
        await stack.enter_async_context(service)
