"""Left rows subscribe to the rows that their foreign keys name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, final

from ks_actors.processors.aggregates import Superseded
from ks_actors.processors.api import Bound, for_old, withdrawn
from ks_actors.processors.foreign_keys._open_deletes import OpenDeletes
from ks_actors.processors.foreign_keys._subscription_wrapper import Instruction, Subscription
from ks_actors.processors.stateless import Inline, failed, spread
from ks_actors.records import murmur3_128
from ks_actors.serdes import alike_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.processors.api import NodeContext, ProcessBatch
    from ks_actors.records import Batch, Headers
    from ks_actors.serdes import Serde

    Message: TypeAlias = tuple[Any, Subscription]
    Tell: TypeAlias = Callable[[Any, tuple[Any, Any]], Sequence[Message]]

FOREIGN_KEY_TOPIC = "-fk"
VALUE_TOPIC = "-vh"
_DELETE = Instruction.DELETE_KEY_NO_PROPAGATE
_DELETE_AND_TELL = Instruction.DELETE_KEY_AND_PROPAGATE
_TELL_ALWAYS = Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
_TELL_IF_THERE = Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE


@final
@dataclass(frozen=True, kw_only=True)
class SubscriptionSend(Inline):
    """Turn changes of the left table into subscriptions, with the foreign keys as keys.

    The foreign key is `extractor(value)`, or `extractor(key, value)` if it is `keyed`. A changed
    foreign key deletes the old subscription first. Without a foreign key an inner join drops the
    row, and a `left` join sends a subscription without a key, for the response alone. Out-of-order
    changes of a `versioned` table are dropped.

    `topic` is the name of the topic of subscriptions without the app's prefix. `key` is the serde
    of foreign keys, which are equal if their bytes are. `primary_key` is the serde of left keys.
    `value` is the serde of left values, for their hash. No store has the bytes of `computed`
    values, so equal values are written as the same bytes, as keys are.
    """

    serde_use: ClassVar[str] = "which compares foreign keys and hashes values of the left table"
    """The reason for the serdes, for the error when one is missing."""

    extractor: Callable[..., Any]
    topic: str
    key: Serde[Any] | None
    primary_key: Serde[Any] | None
    value: Serde[Any] | None
    keyed: bool = False
    left: bool = False
    computed: bool = False
    versioned: bool = False

    def embedded_serdes(self) -> tuple[tuple[Serde[Any] | None, str, bool], ...]:
        """Return serdes that write no record of their own: serde, topic, whether for keys."""
        return (
            (self.key, self.topic + FOREIGN_KEY_TOPIC, True),
            (self.value, self.topic + VALUE_TOPIC, False),
        )

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        tell = self._left(context) if self.left else self._inner(context)
        forward = context.forward
        versioned = self.versioned

        def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
            if versioned and type(change) is Superseded:
                context.dropped()
                return
            try:
                messages = tell(key, change)
            except Exception:
                back = withdrawn(context, change)
                for foreign_key, subscription in () if back is None else tell(key, back):
                    forward(foreign_key, subscription, timestamp, headers)
                raise
            for foreign_key, subscription in messages:
                forward(foreign_key, subscription, timestamp, headers)

        return Bound(process, self._batch_form(context, tell))

    def _batch_form(self, context: NodeContext, tell: Tell) -> ProcessBatch:
        forward_batch = context.forward_batch
        versioned = self.versioned

        def process_batch(batch: Batch) -> None:
            foreign_keys: list[Any] = []
            subscriptions: list[Any] = []
            counts: list[int] = []
            for key, change in zip(batch.keys, batch.values, strict=True):
                messages: Sequence[Message] = ()
                if versioned and type(change) is Superseded:
                    context.dropped()
                else:
                    try:
                        messages = tell(key, change)
                    except BaseException as error:  # noqa: BLE001 - the handler decides
                        failed(context, batch, len(counts), error)
                        back = withdrawn(context, change)
                        messages = () if back is None else tell(key, back)
                for foreign_key, subscription in messages:
                    foreign_keys.append(foreign_key)
                    subscriptions.append(subscription)
                counts.append(len(messages))
            if subscriptions:
                forward_batch(spread(batch, foreign_keys, subscriptions, counts))

        return process_batch

    def _inner(self, context: NodeContext) -> Tell:
        extract, changed, value_hash = self._functions(context)
        extract_old = for_old(context, extract)
        partition = context.task_id.partition
        deletes = OpenDeletes.of(context, self.topic, self.primary_key)

        def tell(key: Any, change: tuple[Any, Any]) -> Sequence[Message]:
            new, old = change
            left = None if old is None else extract_old(key, old)
            if new is None:
                if left is None:
                    return ()
                # Until the response comes, the result of this key may be stale.
                deletes.add(key)
                return ((left, Subscription(None, _DELETE_AND_TELL, key, partition)),)
            joined = extract(key, new)
            if joined is None:
                context.dropped()
                if left is None:
                    return ()
                found = value_hash(new)
                deletes.add(key)
                return ((left, Subscription(found, _DELETE_AND_TELL, key, partition)),)
            found = value_hash(new)
            # The foreign key is the same, so the new subscription replaces the old.
            if left is None or not changed(joined, left):
                return ((joined, Subscription(found, _TELL_IF_THERE, key, partition)),)
            return (
                (left, Subscription(found, _DELETE, key, partition)),
                (joined, Subscription(found, _TELL_ALWAYS, key, partition)),
            )

        return tell

    def _left(self, context: NodeContext) -> Tell:
        extract, changed, value_hash = self._functions(context)
        extract_old = for_old(context, extract)
        partition = context.task_id.partition

        def tell(key: Any, change: tuple[Any, Any]) -> Sequence[Message]:
            new, old = change
            if new is None and old is None:
                return ()
            left = None if old is None else extract_old(key, old)
            joined = None if new is None else extract(key, new)
            found = None if new is None else value_hash(new)
            message = (joined, Subscription(found, _TELL_ALWAYS, key, partition))
            if left is None or not changed(joined, left):
                return (message,)
            return ((left, Subscription(found, _DELETE, key, partition)), message)

        return tell

    def _functions(
        self, context: NodeContext
    ) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], bool], Callable[[Any], bytes]]:
        """Return functions for a foreign key, for its change, and for the hash of a value."""
        topic = f"{context.application_id}-{self.topic}"
        write_key = context.key_serde(self.key).serializer(topic + FOREIGN_KEY_TOPIC, is_key=True)
        value = context.value_serde(self.value)
        write_value = (
            alike_writer(value, topic + VALUE_TOPIC)
            if self.computed
            else value.serializer(topic + VALUE_TOPIC)
        )

        def changed(new: Any, old: Any) -> bool:
            # Compare bytes, as in Kafka Streams: equal objects may still go to different
            # partitions.
            return new is None or write_key(new) != write_key(old)

        def value_hash(value: Any) -> bytes:
            # Kafka Streams' own hash: while an app migrates, tasks of Kafka Streams and of this
            # library may answer each other.
            return murmur3_128(write_value(value))

        return with_key(self.extractor, keyed=self.keyed), changed, value_hash


def with_key(extractor: Callable[..., Any], *, keyed: bool) -> Callable[[Any, Any], Any]:
    """Return the function of key and value for the foreign key."""
    return extractor if keyed else lambda _, value: extractor(value)
