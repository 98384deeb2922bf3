"""Client ids on the wire."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, Consumed, Materialized, Produced, StreamsBuilder, StreamsConfig
from ks_actors.log import NewTopic
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.client._connection import Connection
from ks_actors.log.kafka.client._connections import name_of_request
from ks_actors.serdes import LONG, STRING
from tests.kafka.broker import Broker
from tests.waiting import until


class Seen:
    """The client ids of all requests, by the kind of request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ids: dict[str, set[str]] = {}
        send = Connection.send

        def noted(connection: Any, request: Any) -> Any:
            self.ids.setdefault(name_of_request(request).partition("Request")[0], set()).add(connection._client_id)
            return send(connection, request)

        monkeypatch.setattr(Connection, "send", noted)

    def has(self, end: str, kind: str) -> bool:
        """Return whether a request of a kind had a client id with this end."""
        return any(each.endswith(end) for each in self.of(kind))

    def of(self, *kinds: str) -> set[str]:
        """Return the client ids of these kinds of requests."""
        return {each for name, ids in self.ids.items() for each in ids if name.split("_")[0] in kinds}


def topology(prefix: str) -> Any:
    builder = StreamsBuilder()
    builder.global_table(f"{prefix}-global", Consumed(STRING, STRING))
    counts = builder.stream(f"{prefix}-in", Consumed(STRING, STRING)).group_by_key().count(Materialized("counts", STRING, LONG))
    counts.to_stream().to(f"{prefix}-out", Produced(STRING, LONG))
    return builder.build()


async def test_brokers_see_the_names_that_kafka_streams_gives_its_clients(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the consumers, the producer and the admin client, with the process id; a log that has a client id keeps it for its own requests."""
    async with KafkaLog(kafka_broker.bootstrap, client_id="maker") as log:
        await log.create_topics([NewTopic(f"ids-{name}", 1) for name in ("global", "in", "out")])
    for given, admin in ((False, None), (True, "mine")):
        seen = Seen(monkeypatch)
        reads = partial(seen.has, "-StreamThread-1-consumer", "Fetch")
        settings = {"application_id": f"ids-{given}", "state_dir": tmp_path, "commit_interval_ms": 50}
        config = StreamsConfig.of({**settings, "bootstrap_servers": kafka_broker.bootstrap})
        if given:
            async with KafkaLog(kafka_broker.bootstrap, client_id="mine") as log, App(topology("ids"), config, log=log):
                await until(reads)
        else:
            async with App(topology("ids"), config):
                await until(reads)
        process = (tmp_path / config.application_id / "kafka-streams-process-metadata").read_text(encoding="utf-8").split('"')[3]
        name = f"{config.application_id}-{process}"
        assert seen.of("JoinGroup", "SyncGroup", "LeaveGroup") == {f"{name}-StreamThread-1-consumer"}
        assert seen.of("Fetch") <= {f"{name}-{kind}" for kind in ("StreamThread-1-consumer", "StreamThread-1-restore-consumer", "global-consumer")}
        assert f"{name}-StreamThread-1-consumer" in seen.of("Fetch")
        assert seen.of("InitProducerId", "Produce") == {f"{name}-StreamThread-1-producer"}
        if admin is None:
            # The process id is known only once the state directory is open, after the first requests.
            assert f"{name}-admin" in seen.of("OffsetFetch", "Metadata", "ListOffsets")
            assert f"{config.application_id}-admin" in seen.of("Metadata")
            assert "ks-actors" not in set().union(*seen.ids.values())
        else:
            assert admin in seen.of("Metadata")
            assert f"{name}-admin" not in set().union(*seen.ids.values())
