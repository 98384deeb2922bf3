"""A real broker that answers as one would whose metadata lag behind those of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.wire import MetadataRequest

UNKNOWN = 3


class Asked(NamedTuple):
    """A request for metadata: its client, and the topics, None for a listing of all."""

    client: KafkaClient
    topics: list[str] | None

    @property
    def lists(self) -> bool:
        return self.topics is None

    def names(self, topic: str) -> bool:
        return topic in (self.topics or ())


class Lagging:
    """Change the next answers that match; `left` counts those that are to come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self._matches: Callable[[Asked], bool] = lambda _: False
        self._hidden: tuple[str, ...] = ()
        self._shown: dict[str, Any] = {}
        self.rows: dict[str, Any] = {}
        real = KafkaClient.send

        async def send(client: KafkaClient, node: int, request: Any, **options: Any) -> Any:
            response = await real(client, node, request, **options)
            if isinstance(request, MetadataRequest):
                self._change(Asked(client, request.topics), response)
            return response

        monkeypatch.setattr(KafkaClient, "send", send)

    def _change(self, asked: Asked, response: Any) -> None:
        rows = {row[1]: tuple(row) for row in response.topics}
        self.rows |= {name: row for name, row in rows.items() if row[0] == 0}
        if not self.left or not self._matches(asked):
            return
        self.left -= 1
        for name in self._hidden:
            if asked.lists:
                rows.pop(name, None)
            elif name in rows:
                rows[name] = (UNKNOWN, *rows[name][1:])
        rows |= {name: row for name, row in self._shown.items() if asked.lists or asked.names(name)}
        response.topics = list(rows.values())

    def lacks(self, *topics: str, times: int, matches: Callable[[Asked], bool] = lambda _: True) -> None:
        """Answer the next matching requests that concern these topics as if they did not exist yet."""
        self._hidden, self._shown, self.left = topics, {}, times
        self._matches = lambda asked: matches(asked) and (asked.lists or any(map(asked.names, topics)))

    def still_has(self, *topics: str, times: int) -> None:
        """Answer the next requests that concern these topics as if they, seen before, still existed."""
        self._hidden, self._shown, self.left = (), {topic: self.rows[topic] for topic in topics}, times
        self._matches = lambda asked: asked.lists or any(map(asked.names, topics))
