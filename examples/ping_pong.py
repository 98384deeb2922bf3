"""Two actors play a ball back and forth until it falls; the last one answers the caller.

Shows: typed messages, a ref inside a message, and a reply that travels from actor to actor until
one of them uses it.

Run: python examples/ping_pong.py
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from actors import Actor, Message, Ref, Reply, Spec, System

HOPS = 10_000


class Ball(Message, frozen=True):
    """A ball that falls after `hops` more hits; the next one goes to `back`."""

    reply: Reply[str]
    hops: int
    back: Ref[Ball]


class Player(Actor[Ball]):
    """A player that hits the ball back."""

    def receive(self, message: Ball) -> None:
        if message.hops == 0:
            message.reply.tell(self.ctx.path)
        else:
            message.back.tell(Ball(message.reply, message.hops - 1, self.ctx.self_ref))


async def play(hops: int) -> str:
    """Play one game with `hops` hits; return the path of the player that dropped the ball."""
    async with System("table") as system:
        left = await system.spawn(Spec(Player), "left")
        right = await system.spawn(Spec(Player), "right")
        return await left.ask(Ball, hops, right)


def main() -> None:
    began = perf_counter()
    loser = asyncio.run(play(HOPS))
    each = (perf_counter() - began) / HOPS
    print(f"the ball fell at {loser} after {HOPS:,} hits, {each * 1e6:.1f} µs each")


if __name__ == "__main__":
    main()
