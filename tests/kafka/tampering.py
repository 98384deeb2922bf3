"""Answers of a real broker that are changed on their way: for answers that no real broker gives on demand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from ks_actors.log.kafka.client._client import KafkaClient

Fault: TypeAlias = "Exception | Callable[[Any], Any]"


class Tampering:
    """Faults for requests of a kind, one after the other; when there are none left, answers come as they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Whom each answer was for is told by the request's class, or that of its struct; memberships ask from threads of their own.
        self._faults: dict[str, list[Fault]] = {}
        self._lock = threading.Lock()
        self._awaited: tuple[int, Callable[[], object]] | None = None
        self.asked: list[str] = []
        real = KafkaClient.send

        async def send(client: KafkaClient, node: int, request: Any, **options: Any) -> Any:
            name = type(getattr(request, "struct", request)).__name__ if not hasattr(request, "struct") else request.struct.__name__
            fault = self._next(name)
            if isinstance(fault, Exception):
                raise fault
            if fault is None:
                return await real(client, node, request, **options)
            try:
                response = await real(client, node, request, **options)
            except Exception:
                # There is no answer to change: the next one is to be.
                self._put_back(name, fault)
                raise
            return fault(response)

        monkeypatch.setattr(KafkaClient, "send", send)

    def _next(self, name: str) -> Fault | None:
        with self._lock:
            self.asked.append(name)
            if self._awaited is not None and len(self.asked) == self._awaited[0]:
                self._awaited[1]()
            for kind, faults in self._faults.items():
                if name.startswith(kind) and faults:
                    return faults.pop(0)
        return None

    def _put_back(self, name: str, fault: Fault) -> None:
        with self._lock:
            next((faults for kind, faults in self._faults.items() if name.startswith(kind)), []).insert(0, fault)

    def add(self, kind: str, *faults: Fault) -> None:
        """Change the next answers to requests with a class that begins with `kind`."""
        with self._lock:
            self._faults.setdefault(kind, []).extend(faults)

    def after(self, number: int) -> asyncio.Event:
        """Return an event that is set as soon as so many more requests are made."""
        loop, made = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._awaited = len(self.asked) + number, lambda: loop.call_soon_threadsafe(made.set)
        return made

    def clear(self) -> None:
        """Change nothing any more."""
        with self._lock:
            self._faults.clear()

    def count(self, kind: str) -> int:
        """The number of requests with a class that begins with `kind`."""
        return sum(name.startswith(kind) for name in self.asked)

    @property
    def left(self) -> int:
        """The number of faults that have not come to pass."""
        with self._lock:
            return sum(map(len, self._faults.values()))


def fetch_answer(change: Callable[[list[Any]], None]) -> Fault:
    """Change the fields of each partition in a fetch: number, code, ends, begin, aborted, replica, records."""

    def fault(response: Any) -> Any:
        topics = []
        for topic, partitions in response.topics:
            changed = [list(partition) for partition in partitions]
            for partition in changed:
                change(partition)
            topics.append((topic, [tuple(partition) for partition in changed]))
        response.topics = topics
        return response

    return fault


def fetch_code(code: int) -> Fault:
    """A fetch that fails."""

    def change(partition: list[Any]) -> None:
        partition[1] = code
        partition[-1] = b""

    return fetch_answer(change)


def damaged(place: int) -> Fault:
    """Records of which a byte was changed; from the end for negative places."""

    def change(partition: list[Any]) -> None:
        if partition[-1]:
            raw = bytearray(partition[-1])
            raw[place] ^= 0x80
            partition[-1] = bytes(raw)

    return fetch_answer(change)


def error_code(code: int) -> Fault:
    """An answer with one error code of its own."""

    def fault(response: Any) -> Any:
        response.error_code = code
        return response

    return fault


def setting(**fields: Any) -> Fault:
    """An answer with other fields."""

    def fault(response: Any) -> Any:
        for name, value in fields.items():
            setattr(response, name, value)
        return response

    return fault
