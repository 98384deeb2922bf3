"""Life cycles: an enum of states, and a table of transitions."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar, final

from ks_actors._errors import IllegalTransition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

E = TypeVar("E", bound=Enum)


@final
class Transitions(Generic[E]):
    """The legal transitions between all states of an enum.

    Raises ValueError for a table that lacks states, or has unknown states.
    """

    def __init__(self, table: Mapping[E, Iterable[E]]) -> None:
        self._legal: dict[E, frozenset[E]] = {
            state: frozenset(targets) for state, targets in table.items()
        }
        if not self._legal:
            raise ValueError("a table of transitions has at least one state")
        kind = type(next(iter(self._legal)))
        named = {*self._legal, *(target for targets in self._legal.values() for target in targets)}
        if strange := [state for state in named if type(state) is not kind]:
            raise ValueError(
                f"the table of transitions of {kind.__name__} names states that do not exist: "
                f"{', '.join(map(str, strange))}"
            )
        if missing := [state.name for state in kind if state not in self._legal]:
            raise ValueError(
                f"the table of transitions of {kind.__name__} lacks the states {', '.join(missing)}"
            )

    def start(
        self, state: E, *, name: str = "", on_change: Callable[[E, E], None] | None = None
    ) -> Cycle[E]:
        """Begin a life in `state`.

        `name` names the life cycle in errors; `on_change(old, new)` is called at each transition.
        """
        return Cycle(self, state, name or type(state).__name__, on_change)

    def legal(self, state: E) -> frozenset[E]:
        """Return the legal next states of `state`; none for a final state."""
        return self._legal[state]


@final
class Cycle(Generic[E]):
    """A life cycle in progress; made by `Transitions.start`."""

    def __init__(
        self,
        transitions: Transitions[E],
        state: E,
        name: str,
        on_change: Callable[[E, E], None] | None,
    ) -> None:
        self._transitions: Transitions[E] = transitions
        self._state: E = state
        self._name: str = name
        self._on_change: Callable[[E, E], None] | None = on_change

    @property
    def state(self) -> E:
        """The current state."""
        return self._state

    def is_(self, *states: E) -> bool:
        """Return whether the current state is one of `states`."""
        return self._state in states

    def can(self, new: E) -> bool:
        """Return whether `to(new)` is legal now."""
        return new in self._transitions.legal(self._state)

    def to(self, new: E) -> E:
        """Go to `new` and return the old state.

        If the transition is not legal, raises IllegalTransition and keeps the state.
        """
        old = self._state
        legal = self._transitions.legal(old)
        if new not in legal:
            ways = ", ".join(sorted(state.name for state in legal))
            raise IllegalTransition(
                f"{self._name} cannot go from {old.name} to {new.name}; "
                f"{f'only to {ways}' if ways else 'it has ended'}"
            )
        self._state = new
        if self._on_change is not None:
            self._on_change(old, new)
        return old

    def __repr__(self) -> str:
        return f"<{self._name} {self._state.name}>"
