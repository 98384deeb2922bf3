"""The right side keeps the subscriptions that it receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.processors.api import Bound
from ks_actors.processors.foreign_keys._combined_key import combined_key
from ks_actors.processors.foreign_keys._subscription_send import FOREIGN_KEY_TOPIC
from ks_actors.processors.foreign_keys._subscription_wrapper import Instruction
from ks_actors.processors.stateless import Inline, failed, forward_rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext
    from ks_actors.processors.foreign_keys._subscription_wrapper import Subscription
    from ks_actors.records import Batch, Headers
    from ks_actors.serdes import Serde

_DELETES: Final = (
    Instruction.DELETE_KEY_NO_PROPAGATE,
    Instruction.DELETE_KEY_AND_PROPAGATE,
)


@final
@dataclass(frozen=True, kw_only=True)
class SubscriptionReceive(Inline):
    """Put subscriptions into `store`, delete ended ones, and forward all.

    A subscription without a foreign key is not kept; it is forwarded if it demands a response, else
    dropped. `topic` is the name of the topic of subscriptions without the app's prefix, `key` the
    serde of foreign keys. The store has subscriptions as they were written.
    """

    store: str
    topic: str
    key: Serde[Any] | None

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        keep = self._keep(context)
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, subscription: Subscription, timestamp: int, headers: Headers) -> None:
            if keep(key, subscription, timestamp):
                forward(key, subscription, timestamp, headers)
            else:
                context.dropped()

        def process_batch(batch: Batch) -> None:
            left_out: list[int] = []
            dropped = 0
            kept: list[Any] = []
            for index, (key, subscription, timestamp) in enumerate(
                zip(batch.keys, batch.values, batch.timestamps, strict=True)
            ):
                try:
                    if keep(key, subscription, timestamp):
                        kept.append(subscription)
                        continue
                    dropped += 1
                except BaseException as error:  # noqa: BLE001 - the handler decides
                    failed(context, batch, index, error)
                left_out.append(index)
            if dropped:
                context.dropped(dropped)
            forward_rest(forward_batch, batch, left_out, kept)

        return Bound(process, process_batch)

    def _keep(self, context: NodeContext) -> Callable[[Any, Subscription, int], bool]:
        """Return the function that updates the store; it returns False for a dropped record."""
        put = context.store(self.store).put_entry
        write = context.key_serde(self.key).serializer(
            f"{context.application_id}-{self.topic}{FOREIGN_KEY_TOPIC}", is_key=True
        )

        def keep(key: Any, subscription: Subscription, timestamp: int) -> bool:
            if subscription is None:
                raise ValueError(
                    f"a record of topic {self.topic} has no value, but each subscription has "
                    "one: let no other program write to this topic"
                )
            instruction = subscription.instruction
            if key is None:
                return instruction is Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
            put(
                # The foreign key comes first: it is the prefix by which a change of a right row
                # finds all its subscriptions.
                combined_key(write(key), subscription.key_data),
                None if instruction in _DELETES else (subscription.data, timestamp),
            )
            return True

        return keep
