"""Apps with session stores and stores of the user's own: a running count per key. `python -m tests.kafka.kinds` is a member until it is killed."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from ks_actors import App, Batch, Processor, ProcessorContext, Record, StateStore, StateStoreContext, StreamsConfig, stores
from ks_actors.dsl import Consumed, Materialized, Produced, SessionWindows, StreamsBuilder
from ks_actors.log.kafka import KafkaLog
from ks_actors.serdes import BYTES, LONG
from ks_actors.topology import Topology
from tests.waiting import SESSION_MS

KINDS = ("session-rocksdb", "session-in_memory", "custom")
GAP_MS = 3_600_000


class Totals(StateStore):
    """Counts, kept in memory."""

    def init(self, context: StateStoreContext) -> None:
        self.context = context
        self.totals: dict[bytes, int] = {}
        context.register(self.restore)

    def add(self, key: bytes) -> int:
        total = self.totals[key] = self.totals.get(key, 0) + 1
        self.context.log_change(key, total.to_bytes(8, "big"))
        return total

    def restore(self, batch: Batch) -> None:
        self.totals.update((key, int.from_bytes(value, "big")) for key, value in zip(batch.keys, batch.values, strict=True))

    def close(self) -> None: ...


class Add(Processor[bytes, bytes, bytes, int]):
    """Count with them."""

    def init(self, context: ProcessorContext[bytes, int]) -> None:
        super().init(context)
        self.totals: Totals = context.get_state_store("counts")

    def process(self, record: Record[bytes, bytes]) -> None:
        self.context.forward(record.with_value(self.totals.add(record.key)))


def topology_of(kind: str, source: str, sink: str) -> Topology:
    """Count per key; in a session store each key has one session, which grows with every record."""
    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed(BYTES, BYTES))
    if kind == "custom":
        builder.add_state_store(stores.custom("counts", Totals))
        stream.process(Add, "counts").to(sink, Produced(BYTES, LONG))
    else:
        store_type: Any = kind.removeprefix("session-")
        windows = SessionWindows.of_inactivity_gap_and_grace(GAP_MS, GAP_MS)
        sessions = stream.group_by_key().windowed_by(windows).count(Materialized("counts", BYTES, LONG, store_type=store_type))
        counts = sessions.to_stream(lambda session, _: session.key).filter(lambda _, value: value is not None)
        counts.to(sink, Produced(BYTES, LONG))
    return builder.build()


def config_of(application_id: str, directory: str, guarantee: str) -> StreamsConfig:
    return StreamsConfig.of(
        {
            "application_id": application_id,
            "state_dir": directory,
            "processing_guarantee": guarantee,
            "commit_interval_ms": 100,
            "session_timeout_ms": SESSION_MS,
            "transaction_timeout_ms": 10_000,
            "num_standby_replicas": 1,
        }
    )


async def main(kind: str, bootstrap: str, application_id: str, source: str, sink: str, directory: str, guarantee: str) -> None:
    config = config_of(application_id, directory, guarantee)
    async with KafkaLog(bootstrap, client_id=config.client_id) as log:
        await App(topology_of(kind, source, sink), config, log=log).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
