"""Send a changed right row to all left rows that subscribe to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates import Superseded
from ks_actors.processors.api import Bound
from ks_actors.processors.foreign_keys._combined_key import prefix_bytes
from ks_actors.processors.foreign_keys._response_wrapper import SubscriptionResponse
from ks_actors.processors.foreign_keys._subscription_send import FOREIGN_KEY_TOPIC
from ks_actors.processors.foreign_keys._subscription_wrapper import KEY_TOPIC, parts
from ks_actors.processors.stateless import Inline, failed, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.processors.api import NodeContext
    from ks_actors.records import Batch, Headers
    from ks_actors.serdes import Serde


@final
@dataclass(frozen=True, kw_only=True)
class ForeignTableJoin(Inline):
    """Send the new value of a right row to every subscription in `store`, by their keys' bytes.

    Changes without key are dropped, and so are out-of-order changes of a `versioned` table. `topic`
    is the name of the topic of subscriptions without the app's prefix, `key` the serde of foreign
    keys, and `primary_key` that of left keys.
    """

    store: str
    topic: str
    key: Serde[Any] | None
    primary_key: Serde[Any] | None
    versioned: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        subscribers = self._subscribers(context)
        forward = context.forward
        forward_batch = context.forward_batch
        versioned = self.versioned

        def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
            if key is None or (versioned and type(change) is Superseded):
                context.dropped()
                return
            for primary_key, response in subscribers(key, change[0]):
                forward(primary_key, response, timestamp, headers)

        def process_batch(batch: Batch) -> None:
            keys: list[Any] = []
            responses: list[Any] = []
            counts: list[int] = []
            before = 0
            for key, change in zip(batch.keys, batch.values, strict=True):
                if key is None or (versioned and type(change) is Superseded):
                    context.dropped()
                else:
                    try:
                        for primary_key, response in subscribers(key, change[0]):
                            keys.append(primary_key)
                            responses.append(response)
                    except BaseException as error:  # noqa: BLE001 - the handler decides
                        failed(context, batch, len(counts), error)
                counts.append(len(keys) - before)
                before = len(keys)
            if keys:
                forward_batch(spread(batch, keys, responses, counts))

        return Bound(process, process_batch)

    def _subscribers(
        self, context: NodeContext
    ) -> Callable[[Any, Any], Iterator[tuple[Any, SubscriptionResponse]]]:
        """Return the function for the left keys and responses of a right row."""
        scan = context.store(self.store).prefix_scan
        topic = f"{context.application_id}-{self.topic}"
        write = context.key_serde(self.key).serializer(topic + FOREIGN_KEY_TOPIC, is_key=True)
        read = context.key_serde(self.primary_key).deserializer(topic + KEY_TOPIC, is_key=True)

        def subscribers(key: Any, value: Any) -> Iterator[tuple[Any, SubscriptionResponse]]:
            prefix = prefix_bytes(write(key))
            length = len(prefix)
            with scan(prefix, bytes) as found:
                for combined, (data, _) in found:
                    value_hash, _, _, partition = parts(data)
                    yield (
                        read(combined[length:]),
                        SubscriptionResponse(value_hash, value, partition),
                    )

        return subscribers
