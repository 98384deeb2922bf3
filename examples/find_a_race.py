"""A lost update between two actors: the natural order hides it, a seed of `explore` finds it.

A hasty teller asks the vault for the balance, adds the deposit, and writes the sum back. That is
two messages, and another teller may come between them. In the natural order none does, since the
second deposit comes by mail and is late enough. A seed chooses the next actor among all that
production could choose, the same each time. The fix is one message, `Add`.

Run: python examples/find_a_race.py
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, assert_never

from actors import Actor, Message, Ref, Reply, Spec, System
from actors.testing import explore

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = 200
BALANCE = 115


class Read(Message, frozen=True):
    reply: Reply[int]


class Write(Message, frozen=True):
    balance: int


class Add(Message, frozen=True):
    reply: Reply[None]
    amount: int


class Deposit(Message, frozen=True):
    reply: Reply[None]
    amount: int


class Vault(Actor[Read | Write | Add]):
    def __init__(self) -> None:
        self._balance = 100

    def receive(self, message: Read | Write | Add) -> None:
        match message:
            case Read(reply):
                reply.tell(self._balance)
            case Write(balance):
                self._balance = balance
            case Add(reply, amount):
                self._balance += amount
                reply.tell(None)
            case _:
                assert_never(message)


class HastyTeller(Actor[Deposit]):
    def __init__(self, vault: Ref[Read | Write | Add]) -> None:
        self._vault = vault

    async def receive(self, message: Deposit) -> None:
        balance = await self._vault.ask(Read)
        self._vault.tell(Write(balance + message.amount))  # the race: `balance` may be out of date
        message.reply.tell(None)


class Teller(HastyTeller):
    async def receive(self, message: Deposit) -> None:
        self._vault.tell(Add(message.reply, message.amount))  # the vault answers


class Desk(Actor[Deposit]):
    """Forward the mail."""

    def __init__(self, to: Ref[Deposit]) -> None:
        self._to = to

    def receive(self, message: Deposit) -> None:
        self._to.tell(message)


MakeTeller: TypeAlias = "Callable[[Ref[Read | Write | Add]], Actor[Deposit]]"


async def two_deposits(make: MakeTeller, system: System) -> None:
    """Deposit 10 at the counter and 5 by mail, onto a balance of 100."""
    vault = await system.spawn(Spec(Vault), "vault")
    counter = await system.spawn(Spec(lambda: make(vault)), "counter")
    mail = await system.spawn(Spec(lambda: make(vault)), "mail")
    for name in ("clerk", "sorter", "porter"):
        mail = await system.spawn(Spec(partial(Desk, mail)), name)
    await asyncio.gather(counter.ask(Deposit, 10), mail.ask(Deposit, 5))
    balance = await vault.ask(Read)
    assert balance == BALANCE, f"the balance is {balance}, not {BALANCE}"


async def in_natural_order() -> None:
    async with System("bank") as bank:
        await two_deposits(HastyTeller, bank)


def main() -> None:
    asyncio.run(in_natural_order())
    print("hasty teller, natural order: passes")
    found = explore(partial(two_deposits, HastyTeller), runs=SEEDS)
    assert found is not None
    print(f"hasty teller, seed {found.seed}: {found.error}")
    again = explore(partial(two_deposits, HastyTeller), runs=1, seed=found.seed)
    print(f"hasty teller, seed {found.seed} again: {again.error if again else 'passes'}")
    left = explore(partial(two_deposits, Teller), runs=SEEDS)
    print(f"repaired teller, {SEEDS} seeds: {left.error if left else 'passes'}")


if __name__ == "__main__":
    main()
