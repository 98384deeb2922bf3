"""The right side responds to subscriptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.api import Bound
from ks_actors.processors.foreign_keys._open_deletes import IF_STALE
from ks_actors.processors.foreign_keys._response_wrapper import SubscriptionResponse
from ks_actors.processors.foreign_keys._subscription_wrapper import Instruction
from ks_actors.processors.stateless import Inline, failed
from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.processors.api import NodeContext
    from ks_actors.processors.foreign_keys._subscription_wrapper import Subscription
    from ks_actors.processors.tables import Get, View
    from ks_actors.records import Headers


@final
@dataclass(frozen=True, kw_only=True)
class SubscriptionJoin(Inline):
    """Respond to a subscription with the right row for its foreign key, as its instruction says.

    `view` is the right table's view. Responses have the left row's key and the later timestamp. If
    Kafka Streams sends no response because there is no right row, a response with the header
    IF_STALE is sent.
    """

    view: View

    @property
    def record_context(self) -> bool:
        """Whether reading the rows of the table needs the record context."""
        return self.view.record_context

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        get, close, _ = self.view.bind(context)
        respond = _responding(get)
        forward = context.forward

        def process(key: Any, subscription: Subscription, timestamp: int, headers: Headers) -> None:
            found = respond(key, subscription, timestamp)
            if found is not None:
                response, time, marked = found
                if marked:
                    headers = (*headers, IF_STALE)
                forward(subscription.primary_key, response, time, headers)

        return Bound(process, _batch_form(context, respond), close)


def _batch_form(context: NodeContext, respond: Respond) -> Callable[[Batch], None]:
    forward_batch = context.forward_batch

    def process_batch(batch: Batch) -> None:
        keys: list[Any] = []
        responses: list[Any] = []
        timestamps: list[int] = []
        marks: list[bool] = []
        chosen: list[bool] = []
        for index, (key, subscription, timestamp) in enumerate(
            zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ):
            found = None
            try:
                found = respond(key, subscription, timestamp)
            except BaseException as error:  # noqa: BLE001 - the handler decides
                failed(context, batch, index, error)
            chosen.append(found is not None)
            if found is not None:
                keys.append(subscription.primary_key)
                responses.append(found[0])
                timestamps.append(found[1])
                marks.append(found[2])
        if keys:
            rest = batch.select(chosen)
            headers = _marked(rest.headers, marks) if True in marks else rest.headers
            forward_batch(Batch(keys, responses, timestamps, headers, rest.offsets))

    return process_batch


def _marked(headers: Sequence[Headers] | None, marks: Sequence[bool]) -> list[Headers]:
    """Return the headers, with IF_STALE where a mark is set."""
    own = [()] * len(marks) if headers is None else headers
    return [
        (*header, IF_STALE) if mark else header for header, mark in zip(own, marks, strict=True)
    ]


def _responding(get: Get) -> Respond:
    """Return the function for the response to a subscription."""

    def respond(
        key: Any, subscription: Subscription, timestamp: int
    ) -> tuple[SubscriptionResponse, int, bool] | None:
        value_hash, instruction, _, partition, _ = subscription
        if instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
            return None
        row = None if key is None else get(key)
        if row is None:
            marked = instruction is Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
            return SubscriptionResponse(value_hash, None, partition), timestamp, marked
        value, seen = row
        if instruction is Instruction.DELETE_KEY_AND_PROPAGATE:
            value = None
        return SubscriptionResponse(value_hash, value, partition), max(timestamp, seen), False

    return respond


if TYPE_CHECKING:
    Respond = Callable[[Any, Subscription, int], tuple[SubscriptionResponse, int, bool] | None]
    """Return a response, its timestamp, and whether it is marked by IF_STALE; or None."""
