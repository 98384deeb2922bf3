"""Async context managers that are open while a topology runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager, AsyncExitStack

    from ks_actors.topology import Topology


def check_services(services: Iterable[Any], *, of: str) -> None:
    """Raise TopologyError unless `async with` takes each service."""
    for service in services:
        kind = type(service)
        if not (hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__")):
            hint = "an object of it" if isinstance(service, type) else "one for `async with`"
            raise TopologyError(
                f"a service of {of} is {service!r}, which `async with` does not take: give {hint}"
            )


async def enter_services(
    stack: AsyncExitStack, topology: Topology, more: Iterable[AbstractAsyncContextManager[Any]] = ()
) -> None:
    """Enter the `service` of each function of the topology, then `more`; each only once."""
    operators = [getattr(node, "operator", None) for node in topology.nodes.values()]
    found = [
        service
        for operator in operators
        if (service := getattr(operator, "service", None)) is not None
    ]
    # Compare by identity: equal services may be separate objects.
    for service in {id(one): one for one in (*found, *more)}.values():
        await stack.enter_async_context(service)
