"""The leaders and coordinators of the model against a real broker: the same requests get the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.log import TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client import TRANSACTION, Unavailable
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.producer import NOBODY, Identity
from ks_actors.log.kafka.wire import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    OffsetRequest,
    ProduceRequest,
    describe_transactions,
    fetch_once,
    init_producer_id,
)
from ks_actors.log.kafka.wire._batch_writer import Encoder
from tests.ks_actors.log.helpers import batch, group_name, new_topic
from tests.ks_actors.log.kafka.producer.modelled import DEBUGGER, Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.log.kafka import KafkaLog
    from tests.kafka.broker import Broker


class Talk:
    """Requests to one cluster, and the answers without what differs from one to the next."""

    def __init__(self, client: KafkaClient, place: TopicPartition) -> None:
        self.answers: list[tuple[object, ...]] = []
        self._client, self._place = client, place
        self._ids: dict[int, int] = {}

    async def _ask(self, request: Any, codes: Callable[[Any], list[int]], *, coordinator: bool = False) -> Any:
        """Ask until the coordinator has loaded its log and written the end markers."""
        if coordinator:
            return await self._client.send_to_coordinator(TRANSACTION, self._place.topic, request, codes)
        return await self._client.send_to_leader(self._place, request, codes)

    def _known(self, producer_id: int) -> int:
        return self._ids.setdefault(producer_id, len(self._ids)) if producer_id >= 0 else -1

    async def init(self, identity: Identity = NOBODY, *, transactional: bool = True) -> Identity:
        request = init_producer_id(self._place.topic if transactional else None, 60_000, *identity)
        answer = await self._ask(request, lambda found: [found.error_code], coordinator=transactional)
        self.answers.append(("init", answer.error_code, self._known(answer.producer_id), answer.producer_epoch))
        return Identity(answer.producer_id, answer.producer_epoch)

    async def add(self, identity: Identity) -> None:
        request = AddPartitionsToTxnRequest(self._place.topic, *identity, [(self._place.topic, [self._place.partition])])
        answer = await self._ask(request, lambda found: [code for _, rows in found.errors for _, code in rows], coordinator=True)
        self.answers.append(("add", *(code for _, rows in answer.errors for _, code in rows)))

    async def end(self, identity: Identity, *, commit: bool) -> None:
        answer = await self._ask(EndTxnRequest(self._place.topic, *identity, commit), lambda found: [found.error_code], coordinator=True)
        self.answers.append(("end", answer.error_code))

    async def describe(self) -> None:
        """Take the state behind the end markers."""
        code, _, state, _, _, producer_id, epoch, *_ = await self._client.retry("to see the end", self._settled)
        self.answers.append(("describe", code) if code else ("describe", 0, state, self._known(producer_id), epoch))

    async def _settled(self) -> Any:
        request = describe_transactions([self._place.topic])
        answer = await self._ask(request, lambda found: [row[0] for row in found.transactions], coordinator=True)
        if answer.transactions[0][2].startswith("Prepare"):
            raise Unavailable("end markers are written", soon=True)
        return answer.transactions[0]

    async def write(self, identity: Identity, sequence: int, count: int = 1, *, transactional: bool = True) -> None:
        encoder = Encoder(KafkaOptions(), transactional=transactional)
        (made,) = encoder.encode(batch(*[b"v"] * count), 1_000_000)
        topics = [(self._place.topic, [(self._place.partition, made.stamped(*identity, sequence))])]
        request = ProduceRequest(self._place.topic if transactional else None, -1, 5_000, topics)
        answer = await self._ask(request, lambda found: [row[1] for _, rows in found.topics for row in rows])
        ((_, (row,)),) = answer.topics
        self.answers.append(("write", row[1], row[2]))

    async def look(self, offset: int) -> None:
        answer = await self._ask(fetch_once(self._place, offset, 0, 1_000_000), lambda _: [])
        ((_, (row,)),) = answer.topics
        self.answers.append(("fetch", row[1]))
        for replica, isolation in ((-1, 0), (-1, 1), (DEBUGGER, 0)):
            request = OffsetRequest(replica, isolation, [(self._place.topic, [(self._place.partition, -1)])])
            answer = await self._ask(request, lambda _: [])
            ((_, (row,)),) = answer.topics
            self.answers.append(("end offset", replica, isolation, row[1], row[3]))


async def converse(talk: Talk) -> list[tuple[object, ...]]:
    """Ask whatever a producer asks, in good order and in bad."""
    plain = await talk.init(transactional=False)
    for epoch, sequence, count in ((0, 0, 2), (0, 2, 1), (0, 2, 1), (0, 5, 1), (1, 3, 1), (1, 0, 1), (0, 3, 1), (5, 0, 1), (5, 0, 2)):
        await talk.write(Identity(plain.producer_id, epoch), sequence, count, transactional=False)
    await talk.describe()
    first = await talk.init()
    await talk.end(first, commit=True)
    await talk.write(first, 0)
    await talk.add(first)
    await talk.write(first, 0, 3)
    await talk.write(first, 4)
    await talk.look(0)
    for commit in (True, True, False):
        await talk.end(first, commit=commit)
        await talk.describe()
    await talk.write(first, 3)
    await talk.add(first)
    await talk.write(first, 3)
    # What was open is aborted by the next epoch, which a repeated request gets again.
    second = await talk.init(first)
    await talk.describe()
    assert await talk.init(first) == second
    await talk.add(first)
    await talk.write(first, 4)
    await talk.end(first, commit=True)
    await talk.add(second)
    await talk.write(second, 1)
    await talk.write(second, 0)
    rival = await talk.init()
    await talk.init(second)
    await talk.end(second, commit=True)
    await talk.end(Identity(rival.producer_id + 1_000, 0), commit=True)
    await talk.end(rival, commit=False)
    await talk.look(1_000)
    return talk.answers


async def test_a_model_answers_as_a_broker_does(kafka_broker: Broker, log: KafkaLog) -> None:
    """Codes, offsets, epochs and states are the same for all that a producer may ask of a leader and a coordinator."""
    (place,) = await new_topic(log)
    async with KafkaClient(kafka_broker.bootstrap, KafkaOptions(), client_id="c") as client:
        found = await converse(Talk(client, place))
    model = TopicPartition(group_name(), 0)
    wanted = await converse(Talk(Cluster([model]).connect(KafkaOptions()), model))
    assert wanted == found
