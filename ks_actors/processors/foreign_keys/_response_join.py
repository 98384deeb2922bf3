"""Left rows are joined with the rows that respond to their subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.processors.api import Bound
from ks_actors.processors.foreign_keys._subscription_send import VALUE_TOPIC, with_key
from ks_actors.processors.stateless import Inline, failed, forward_rest
from ks_actors.records import murmur3_128

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext
    from ks_actors.processors.foreign_keys._response_wrapper import SubscriptionResponse
    from ks_actors.processors.tables import Get, View
    from ks_actors.records import Batch, Headers
    from ks_actors.serdes import Serde

_STALE: Final = object()


@final
@dataclass(frozen=True, kw_only=True)
class ResponseJoin(Inline):
    """Replace responses by `joiner(left value, right value)`, and by None where nothing is joined.

    A response to a value that the left row no longer has is dropped: another response is on its
    way. `view` is that of the left table, `value` the serde of its values, `topic` the bare name of
    the topic of subscriptions. A `left` join joins a left row with None.
    """

    view: View
    joiner: Callable[[Any, Any], Any]
    extractor: Callable[..., Any]
    topic: str
    value: Serde[Any] | None
    keyed: bool = False
    left: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        get, close, _ = self.view.bind(context)
        resolve = self._resolving(context, get)
        forward = context.forward
        forward_batch = context.forward_batch

        def process(
            key: Any, response: SubscriptionResponse, timestamp: int, headers: Headers
        ) -> None:
            result = resolve(key, response)
            if result is _STALE:
                context.dropped()
            else:
                forward(key, result, timestamp, headers)

        def process_batch(batch: Batch) -> None:
            holes: list[int] = []
            results: list[Any] = []
            dropped = 0
            for index, (key, response) in enumerate(zip(batch.keys, batch.values, strict=True)):
                try:
                    result = resolve(key, response)
                except Exception as error:  # noqa: BLE001 - the handler decides
                    failed(context, batch, index, error)
                    holes.append(index)
                    continue
                if result is _STALE:
                    dropped += 1
                    holes.append(index)
                else:
                    results.append(result)
            if dropped:
                context.dropped(dropped)
            forward_rest(forward_batch, batch, holes, results)

        return Bound(process, process_batch, close)

    def _resolving(
        self, context: NodeContext, get: Get
    ) -> Callable[[Any, SubscriptionResponse], Any]:
        """Return the function for the result of a response, `_STALE` for one to drop."""
        write = context.value_serde(self.value).serializer(
            f"{context.application_id}-{self.topic}{VALUE_TOPIC}"
        )
        joiner = self.joiner
        left = self.left
        extract = with_key(self.extractor, keyed=self.keyed)

        def resolve(key: Any, response: SubscriptionResponse) -> Any:
            if response is None:
                raise ValueError(
                    "a response to a subscription has no value, and no response is without one: "
                    "nothing else may write to this topic"
                )
            value_hash, theirs, _ = response
            row = get(key)
            mine = None if row is None else row[0]
            if value_hash != (None if mine is None else murmur3_128(write(mine))):
                # No other response will follow for a row that subscribes to nothing.
                if theirs is None and not left and (mine is None or extract(key, mine) is None):
                    return None
                return _STALE
            if theirs is None and (mine is None or not left):
                return None
            return joiner(mine, theirs)

        return resolve
