"""The idempotent producer, without transactions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from ks_actors._errors import IllegalGeneration, LogClosed
from ks_actors.log._request_figures import RequestFigures
from ks_actors.log.kafka.client import PRODUCE
from ks_actors.log.kafka.producer._partition_queue import Identity
from ks_actors.log.kafka.producer._send_call import SendCall
from ks_actors.log.kafka.producer._sender import Sender
from ks_actors.log.kafka.wire import Encoder, error_of, init_producer_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ks_actors.log._lease import Lease
    from ks_actors.log._types import Outgoing
    from ks_actors.log.kafka.admin import Admin
    from ks_actors.log.kafka.client import KafkaClient


@final
class KafkaProducer:
    """Write idempotently; several requests may be in flight, and records keep the order of calls.

    Records larger than their topic allows are refused before any request to that partition, if the
    topic's max.message.bytes can be looked up. A restarted broker forgets a producer if its last
    records have timestamps older than the broker's producer.id.expiration.ms (default: a day). If a
    response is lost at that moment, its records may be written twice, except in transactions.
    """

    def __init__(
        self,
        client: KafkaClient,
        admin: Admin,
        client_id: str,
        closed: Callable[[KafkaProducer], None],
        *,
        lease: Lease | None = None,
        topics: Collection[str] = (),
    ) -> None:
        self.client_id: str = client_id
        self._client: KafkaClient = client
        self._admin: Admin = admin
        self._encoder: Encoder = Encoder(client.options, transactional=False)
        self.figures: RequestFigures = RequestFigures("produce", client_id)
        self._sender: Sender = Sender(
            client, self._encoder, renew=self._new_identity, lease=lease, figures=self.figures
        )
        self._topics: Collection[str] = topics
        self._on_close = closed
        self._order: asyncio.Lock = asyncio.Lock()
        self._abandoned = 0
        self._closed = False

    async def start(self) -> None:
        """Connect and get a producer id."""
        await self._client.start()
        self._client.connect_ahead(self._topics, PRODUCE)
        self._sender.reset(await self._new_identity())

    async def _new_identity(self) -> Identity:
        response = await self._client.send_to_any(
            init_producer_id(None, self._client.options.request_timeout_ms),
            lambda answer: [answer.error_code],
        )
        if response.error_code:
            raise error_of(
                response.error_code, f"producer {self.client_id} cannot get a producer id"
            )
        return Identity(response.producer_id, response.producer_epoch)

    async def send(self, batches: Sequence[Outgoing], /) -> Sequence[int]:
        """Append all batches; return the offset after the last record of each batch.

        Raises ProduceFailed; its errors are LogTimeout for records that may or may not be written.
        Raises TypeError for keys or values that are not bytes, before anything is sent.
        """
        send_call = SendCall(self._admin, batches)
        # Read before the wait for the lock: an `abandon` during that wait concerns this call, too.
        abandoned = self._abandoned
        # Encoding yields to the event loop; without the lock, a later call could overtake this.
        async with self._order:
            self._check()
            await send_call.encode(self._encoder)
            self._check()
            if abandoned != self._abandoned:
                send_call.refuse(dict.fromkeys(send_call.partitions, not_sent(self.client_id)))
            outcomes = send_call.put(self._sender)
        await self._sender.wait_for(outcomes)
        for error in send_call.take_errors():
            if isinstance(error, LogClosed):
                raise LogClosed(str(error))
        return await send_call.result()

    def abandon(self) -> None:
        """Send and repeat nothing more of earlier `send` calls.

        Connections with unanswered requests are aborted, so that brokers get no more of them.
        Waiting calls raise ProduceFailed, with an IllegalGeneration for each partition that lacks
        records, or may lack them.
        """
        self._abandoned += 1
        self._sender.abandon(not_sent(self.client_id))

    def _check(self) -> None:
        if self._closed:
            raise LogClosed(f"producer {self.client_id} is closed")

    async def close(self) -> None:
        """Close; waiting calls raise LogClosed. A second call does nothing."""
        if self._closed:
            return
        # Set before the first await, so that no call can add more records.
        self._closed = True
        self._on_close(self)
        await self._sender.close(
            LogClosed(
                f"producer {self.client_id} was closed, and it is not known whether its last "
                "records were written"
            )
        )
        await self._client.close()


def not_sent(client_id: str) -> IllegalGeneration:
    """Return the error for abandoned records."""
    return IllegalGeneration(
        f"producer {client_id} did not send its last records, because their member may have left "
        "the group"
    )
