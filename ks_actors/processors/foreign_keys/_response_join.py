"""Join left rows with the rows that respond to their subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.processors.api import Bound, for_old
from ks_actors.processors.foreign_keys._open_deletes import (
    IF_STALE,
    OpenDeletes,
    without_mark,
)
from ks_actors.processors.foreign_keys._subscription_send import VALUE_TOPIC, with_key
from ks_actors.processors.stateless import Inline, failed, forward_rest
from ks_actors.records import Batch, murmur3_128
from ks_actors.serdes import alike_writer, tell_of_varying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.processors.api import NodeContext
    from ks_actors.processors.foreign_keys._response_wrapper import SubscriptionResponse
    from ks_actors.processors.tables import Get, View
    from ks_actors.records import Headers
    from ks_actors.serdes import Serde

    Current = Callable[[Any, bytes | None], tuple[Any, bool]]
    Resolve = Callable[[Any, SubscriptionResponse, bool], Any]

_STALE: Final = object()
_NEEDLESS: Final = object()
_VALUES: Final = 2
_WITH_KEY: Final = 3
_EXAMINED: Final = 100
"""The number of responses without a value to check for a serde whose bytes vary."""


@final
@dataclass(frozen=True, kw_only=True)
class ResponseJoin(Inline):
    """Replace responses by `joiner(left value, right value)`, and by None where nothing is joined.

    A joiner of three `arguments` gets the key first; a joiner of four gets the key and the foreign
    key first.

    A response to a value that the left row no longer has is dropped: another response is on its
    way. A value is identified by the hash of its bytes. These are the bytes in `store`, maybe from
    an earlier version of the app, or the bytes as written now. With `store` None, values are
    computed.

    A response with the header IF_STALE deletes the row only if an earlier delete was dropped, or is
    still under way. If a left row has no foreign key, an inner join deletes its result at once,
    because no other response follows.

    `view` is the left table's view, `key` and `value` are the serdes of its rows. `topic` is the
    name of the topic of subscriptions without the app's prefix. The foreign key is
    `extractor(value)`, or `extractor(key, value)` if it is `keyed`. A `left` join joins a left row
    with None.
    """

    view: View
    joiner: Callable[..., Any]
    extractor: Callable[..., Any]
    topic: str
    key: Serde[Any] | None
    value: Serde[Any] | None
    keyed: bool = False
    left: bool = False
    arguments: int = _VALUES
    store: str | None = None

    @property
    def record_context(self) -> bool:
        """Whether reading the rows of the table needs the record context."""
        return self.view.record_context

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        get, close, _ = self.view.bind(context)
        resolve = self._left(context, get) if self.left else self._inner(context, get)
        forward = context.forward

        def process(
            key: Any, response: SubscriptionResponse, timestamp: int, headers: Headers
        ) -> None:
            marked = IF_STALE in headers
            result = resolve(key, response, marked)
            if result is _STALE:
                # A newer row has overtaken the response, which is ordinary.
                context.dropped(told=False)
            elif result is not _NEEDLESS:
                forward(key, result, timestamp, without_mark(headers) if marked else headers)

        return Bound(process, _batch_form(context, resolve), close)

    def _left(self, context: NodeContext, get: Get) -> Resolve:
        current = self._current(context, get)
        join = self._join()

        def resolve(key: Any, response: SubscriptionResponse, _: bool) -> Any:
            value_hash, right = _checked(response)[:2]
            left, is_current = current(key, value_hash)
            if not is_current:
                return _STALE
            return None if right is None and left is None else join(key, left, right)

        return resolve

    def _inner(self, context: NodeContext, get: Get) -> Resolve:
        current = self._current(context, get)
        join = self._join()
        extract = with_key(self.extractor, keyed=self.keyed)
        extract_old = for_old(context, extract)
        deletes = OpenDeletes.of(context, self.topic, self.key)

        def resolve(key: Any, response: SubscriptionResponse, marked: bool) -> Any:
            value_hash, right, _ = _checked(response)
            left, is_current = current(key, value_hash)
            if is_current:
                may_be_stale = deletes.resolve(key)
                if right is not None:
                    return join(key, left, right)
                return _NEEDLESS if marked and not may_be_stale else None
            if right is None and (left is None or extract_old(key, left) is None):
                return _NEEDLESS if not deletes.resolve(key) and marked else None
            if marked:
                return _NEEDLESS
            if right is None:
                deletes.add(key)
            return _STALE

        return resolve

    def _join(self) -> Callable[[Any, Any, Any], Any]:
        """Return the function that joins the values of both sides, for the left row's key."""
        joiner, extract = self.joiner, with_key(self.extractor, keyed=self.keyed)
        if self.arguments == _WITH_KEY:
            return joiner
        if self.arguments == _VALUES:
            return lambda _, left, right: joiner(left, right)

        def with_both_keys(key: Any, left: Any, right: Any) -> Any:
            return joiner(key, None if left is None else extract(key, left), left, right)

        return with_both_keys

    def _current(self, context: NodeContext, get: Get) -> Current:
        """Return a function that returns a key's left value, and whether a hash fits the value."""
        topic = f"{context.application_id}-{self.topic}{VALUE_TOPIC}"
        serde = context.value_serde(self.value)
        write, write_alike = serde.serializer(topic), alike_writer(serde, topic)
        read = serde.deserializer(topic)
        examined = 0
        stored = None if self.store is None else context.store(self.store).value_bytes

        def current(key: Any, value_hash: bytes | None) -> tuple[Any, bool]:
            row = get(key)
            if row is None or value_hash is None:
                return (None, value_hash is None) if row is None else (row[0], False)
            left = row[0]
            data = write_alike(left) if stored is None else stored(key)
            if murmur3_128(data) == value_hash:
                return left, True
            data = write(left)
            if murmur3_128(data) == value_hash:
                return left, True
            # Most such responses belong to a former value. The first ones show whether all do.
            nonlocal examined
            if examined < _EXAMINED:
                examined += 1
                if write(read(data)) != data:
                    examined = _EXAMINED
                    tell_of_varying(
                        serde,
                        f"values of the left table of the join with topic {self.topic}",
                        "drop results of the join",
                    )
            return left, False

        return current


def _batch_form(context: NodeContext, resolve: Resolve) -> Callable[[Batch], None]:
    forward_batch = context.forward_batch

    def process_batch(batch: Batch) -> None:
        left_out: list[int] = []
        results: list[Any] = []
        stale = 0
        headers: Iterable[Headers] = repeat(()) if batch.headers is None else batch.headers
        # The headers are also an endless repetition.
        for index, (key, response, header) in enumerate(
            zip(batch.keys, batch.values, headers, strict=False)
        ):
            try:
                result = resolve(key, response, bool(header) and IF_STALE in header)
            except BaseException as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
                left_out.append(index)
                continue
            if result is _STALE or result is _NEEDLESS:
                stale += result is _STALE
                left_out.append(index)
            else:
                results.append(result)
        if stale:
            context.dropped(stale, told=False)
        forward_rest(forward_batch, _without_marks(batch), left_out, results)

    return process_batch


def _without_marks(batch: Batch) -> Batch:
    """Return the batch without the headers IF_STALE."""
    if batch.headers is None:
        return batch
    headers = list(map(without_mark, batch.headers))
    return Batch(
        batch.keys,
        batch.values,
        batch.timestamps,
        headers if any(headers) else None,
        batch.offsets,
    )


def _checked(response: SubscriptionResponse | None) -> SubscriptionResponse:
    if response is None:
        raise ValueError(
            "a response to a subscription has no value, but each response has one: let no other "
            "program write to this topic"
        )
    return response
