"""The right side responds to subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.api import Bound
from ks_actors.processors.foreign_keys._response_wrapper import SubscriptionResponse
from ks_actors.processors.foreign_keys._subscription_wrapper import Instruction
from ks_actors.processors.stateless import Inline, failed
from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext
    from ks_actors.processors.foreign_keys._subscription_wrapper import Subscription
    from ks_actors.processors.tables import Get, View
    from ks_actors.records import Headers


@final
@dataclass(frozen=True, kw_only=True)
class SubscriptionJoin(Inline):
    """Respond to a subscription with the right row for its foreign key, as its instruction says.

    `view` is that of the right table. Responses have the left row's key and the later timestamp.
    """

    view: View

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        get, close, _ = self.view.bind(context)
        respond = _responding(get)
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, subscription: Subscription, timestamp: int, headers: Headers) -> None:
            found = respond(key, subscription, timestamp)
            if found is not None:
                forward(subscription.primary_key, found[0], found[1], headers)

        def process_batch(batch: Batch) -> None:
            keys: list[Any] = []
            responses: list[Any] = []
            timestamps: list[int] = []
            chosen: list[bool] = []
            for index, (key, subscription, timestamp) in enumerate(
                zip(batch.keys, batch.values, batch.timestamps, strict=True)
            ):
                found = None
                try:
                    found = respond(key, subscription, timestamp)
                except Exception as error:  # noqa: BLE001 - the handler decides
                    failed(context, batch, index, error)
                chosen.append(found is not None)
                if found is not None:
                    keys.append(subscription.primary_key)
                    responses.append(found[0])
                    timestamps.append(found[1])
            if keys:
                rest = batch.select(chosen)
                forward_batch(Batch(keys, responses, timestamps, rest.headers, rest.offsets))

        return Bound(process, process_batch, close)


def _responding(
    get: Get,
) -> Callable[[Any, Subscription, int], tuple[SubscriptionResponse, int] | None]:
    """Return the function for the response to a subscription, with its timestamp."""

    def respond(
        key: Any, subscription: Subscription, timestamp: int
    ) -> tuple[SubscriptionResponse, int] | None:
        value_hash, instruction, _, partition, _ = subscription
        if instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
            return None
        row = None if key is None else get(key)
        if row is None:
            if instruction is Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
                return None
            return SubscriptionResponse(value_hash, None, partition), timestamp
        value, seen = row
        if instruction is Instruction.DELETE_KEY_AND_PROPAGATE:
            value = None
        return SubscriptionResponse(value_hash, value, partition), max(timestamp, seen)

    return respond
