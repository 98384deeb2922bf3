"""The messages that the cases are about."""

from __future__ import annotations

from actors import Message, Reply


class Add(Message, frozen=True):
    n: int


class Get(Message, frozen=True):
    reply: Reply[int]
    key: str


class Other(Message, frozen=True):
    text: str
