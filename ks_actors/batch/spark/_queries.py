"""The streaming queries of a batch bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import BatchError, JobCancelled
from ks_actors.batch.spark._messages import QueryEnded
from ks_actors.batch.spark._query import Runs

if TYPE_CHECKING:
    from actors import Context, Ref, Reply
    from ks_actors.batch.spark._messages import BridgeMessage, QueryMessage, StartQuery, StopQuery
    from ks_actors.batch.spark._session import SparkSession


@final
class Queries:
    """Queries by name, each a child actor of the bridge, and the replies due when queries end."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._runs: dict[str, Runs] = {}
        self._actors: dict[Ref[QueryMessage], str] = {}
        self._stopping: dict[str, list[Reply[bool]]] = {}

    def take_on(self, order: StartQuery) -> bool:
        """Reserve the name of a query until there is a session; return whether it was free."""
        if order.name in self._runs:
            order.reply.fail(
                BatchError(
                    f"query {order.name} already runs: stop it, or give this one another name"
                )
            )
            return False
        self._runs[order.name] = Runs(order, self._session)
        return True

    def refuse(self, order: StartQuery, error: Exception) -> None:
        """Drop a query because there is no session."""
        self._over(order.name, error)

    async def start(self, order: StartQuery, context: Context[BridgeMessage]) -> None:
        """Start a query, unless it was stopped in the meantime."""
        if order.name in self._stopping:
            self._over(order.name, None)
            return
        runs = self._runs[order.name]
        # Escape reversibly, so that different names give different paths.
        path = order.name.replace("%", "%25").replace("/", "%2F")
        actor = await context.spawn(runs.spec(), f"query-{path}")
        self._actors[actor] = order.name
        context.watch(actor)

    def stop(self, message: StopQuery, context: Context[BridgeMessage]) -> None:
        """Stop a query; the reply comes when it ends."""
        if message.name not in self._runs:
            message.reply.tell(False)
            return
        waiting = self._stopping.setdefault(message.name, [])
        waiting.append(message.reply)
        for actor, name in self._actors.items():
            if name == message.name and len(waiting) == 1:
                context.stop(actor)

    def ended(self, actor: Ref[Any], cause: Exception | None) -> bool:
        """Handle the end of an actor; return whether it ran a query."""
        name = self._actors.pop(actor, None)
        if name is not None:
            self._over(name, cause)
        return name is not None

    def close(self) -> None:
        """Report the end of all queries; their actors have already stopped."""
        for name in list(self._runs):
            self._over(name, None)
        self._actors.clear()

    def _over(self, name: str, error: Exception | None) -> None:
        runs = self._runs.pop(name)
        if runs.begun:
            runs.tell(QueryEnded(name, error))
        else:
            runs.order.reply.fail(error or JobCancelled(f"query {name} was stopped before it ran"))
        for reply in self._stopping.pop(name, ()):
            reply.tell(True)
