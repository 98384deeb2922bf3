"""Faults of a cluster, and of the way to it; `heal` ends all of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.simulation.network import Line, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.cluster import Cluster, Partition

# Codes for a partition of a fetch, and for a whole one.
_PARTITION_CODES: Final = (3, 5, 6, 9, 56, 74, 75, 78, 100, -1, 2, 7, 13)
_FETCH_CODES: Final = (70, 71, 106, -1)
_OFFSET_CODES: Final = (5, 6, 7, 78, -1)
_PRODUCE_CODES: Final = (5, 6, 13, 19, 56, 3, 2)
# Codes that do not tell whether the batch was written.
_LATE_CODES: Final = (7, 20)
_TRANSACTION_CODES: Final = (14, 15, 16, 51)
_OFFSETS_CODES: Final = (14, 15, 16, 7)
_GROUP_CODES: Final = (14, 15, 16)
_CONTROLLER_CODES: Final = (7, 41)


class Faults:
    """Faults of the kinds given, one after the other, until `until`."""

    def __init__(
        self, cluster: Cluster, random: Random, kinds: Sequence[str], *, until: float, sites: Sequence[int], outcast: int | None = None
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._random = random
        self._kinds = kinds
        self._until = until
        self._sites = sites
        # How many there have been.
        self.count = 0
        # A broker that stays cut off from the others for good, though clients reach it.
        self._outcast = outcast
        self._all: dict[str, Callable[[], None]] = {
            "move": self._move, "gather": self._gather, "kill": self._kill, "vanish": self._vanish, "freeze": self._freeze, "isolate": self._isolate,
            "cut": self._cut, "hollow": self._hollow, "reset": self._reset, "lose": self._lose, "slow": self._slow, "throttle": self._throttle,
            "forget": self._forget, "fetch codes": self._codes("Fetch", _FETCH_CODES),
            "partition codes": self._codes("Fetch partition", _PARTITION_CODES), "offset codes": self._codes("ListOffsets", _OFFSET_CODES),
            "produce codes": self._codes("Produce", _PRODUCE_CODES), "late codes": self._codes("Produce late", _LATE_CODES),
            "transaction codes": self._codes("transaction", _TRANSACTION_CODES), "offsets codes": self._codes("TxnOffsetCommit", _OFFSETS_CODES),
            "producer codes": self._codes("InitProducerId", _GROUP_CODES), "group codes": self._codes("group", _GROUP_CODES),
            "controller codes": self._codes("controller", _CONTROLLER_CODES),
            "coordinate": self._coordinate, "limit": self._limit,
            "delete": self._delete, "compact": self._compact, "unclean": self._unclean,
        }  # fmt: skip

    async def befall(self) -> None:
        """Have them happen."""
        loop = asyncio.get_running_loop()
        for _ in range(self._random.choice([1, 3, 8, 25])):
            await asyncio.sleep(self._random.expovariate(4))
            if loop.time() > self._until - 0.1:
                break
            kind = self._random.choice(self._kinds)
            self._cluster.trace.note("fault", kind)
            self.count += 1
            self._all[kind]()

    async def heal(self) -> None:
        """End all faults at their time."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._until - loop.time())
        cluster = self._cluster
        cluster.trace.note("heals")
        for broker in cluster.brokers.values():
            broker.slow = 0.0
            broker.loses = 0
            broker.thaw()
            broker.rejoin()
            broker.start()
            for site in self._sites:
                cluster.network.mend(Place(site, broker.node))
        for codes in cluster.codes.values():
            codes.clear()
        if self._outcast is not None:
            # It knows the others: one that knows itself alone would keep clients for good, as it keeps Kafka's own.
            await asyncio.sleep(0.5 + 20 * cluster.manners.lag)
            cluster.brokers[self._outcast].isolate()

    def _later(self, low: float, high: float, end: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(min(self._until, loop.time() + low + (high - low) * self._random.random() ** 3), end)

    # --- leaders ------------------------------------------------------------------------------------------------------------------------

    def _partitions(self) -> list[Partition]:
        return list(self._cluster.partitions())

    def _node(self) -> int:
        return self._random.choice(list(self._cluster.brokers))

    def _move(self) -> None:
        self._cluster.elect([self._random.choice(self._partitions())], self._node())

    def _gather(self) -> None:
        self._cluster.elect(self._partitions(), self._node())

    def _unclean(self) -> None:
        full = [each for each in self._partitions() if each.log.batches and not each.name.topic.startswith("__")]
        if full:
            self._cluster.elect([self._random.choice(full)], unclean=True)

    def _coordinate(self) -> None:
        internal = [each for each in self._partitions() if each.name.topic.startswith("__")]
        self._cluster.elect([self._random.choice(internal)], self._node())

    # --- brokers ------------------------------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        broker = self._cluster.brokers[self._node()]
        broker.kill()
        self._later(0.02, 4, broker.start)

    def _vanish(self) -> None:
        broker = self._cluster.brokers[self._node()]
        broker.kill(machine=True)
        self._later(0.5, 6, broker.start)

    def _freeze(self) -> None:
        broker = self._cluster.brokers[self._node()]
        broker.freeze()
        self._later(0.05, 8, broker.thaw)

    def _isolate(self) -> None:
        broker = self._cluster.brokers[self._node()]
        broker.isolate()
        self._later(0.1, 8, broker.rejoin)

    def _lose(self) -> None:
        self._cluster.brokers[self._node()].loses += self._random.choice([1, 1, 3])

    def _slow(self) -> None:
        broker = self._cluster.brokers[self._node()]
        broker.slow = self._random.choice([0.01, 0.2, 1.5])
        self._later(0.2, 3, lambda: setattr(broker, "slow", 0.0))

    def _forget(self) -> None:
        self._cluster.brokers[self._node()].sessions.clear()

    # --- ways ---------------------------------------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        place = Place(self._random.choice(sorted({line.place.site for line in self._cluster.network.lines}) or [1]), self._node())
        self._cluster.network.cut(place)
        self._later(0.1, 6, lambda: self._cluster.network.mend(place))

    def _hollow(self) -> None:
        for line in self._some_lines():
            line.hollow = True

    def _reset(self) -> None:
        for line in self._some_lines():
            line.reset()

    def _some_lines(self) -> list[Line]:
        lines = list(self._cluster.network.lines)
        return self._random.sample(lines, min(len(lines), self._random.choice([1, 1, 3])))

    # --- answers ------------------------------------------------------------------------------------------------------------------------

    def _throttle(self) -> None:
        self._cluster.codes["throttle"].append(self._random.choice([1, 50, 800]))

    def _codes(self, name: str, codes: Sequence[int]) -> Callable[[], None]:
        """Return what has the next requests of a name be answered with some of the codes."""
        return lambda: self._cluster.codes[name].extend(self._random.choices(codes, k=self._random.choice([1, 2, 3])))

    def _limit(self) -> None:
        topic = self._random.choice([each for each in self._cluster.topics.values() if not each.internal])
        topic.configs["max.message.bytes"] = str(self._random.choice([150, 400, 1_048_588]))

    # --- logs ---------------------------------------------------------------------------------------------------------------------------

    def _delete(self) -> None:
        partition = self._random.choice(self._partitions())
        ends = [batch.behind for batch in partition.log.batches if batch.behind <= partition.log.high]
        if ends and self._random.random() < 0.5:
            partition.log.delete_before(self._random.choice(ends) - self._random.choice([0, 0, 1]))
            partition.log.wake()

    def _compact(self) -> None:
        log = self._random.choice(self._partitions()).log
        able = [
            index for index, batch in enumerate(log.batches[:-1]) if batch.kind == "data" and not batch.transactional and batch.behind <= log.high
        ]
        if able:
            log.compact(self._random.choice(able))
