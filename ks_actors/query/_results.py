"""Results of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, final

from ks_actors._errors import FailureReason, QueryFailed
from ks_actors.query._position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

R = TypeVar("R")


@final
class QueryResult(Generic[R]):
    """The answer of one partition: `value`, or a `failure` with its `message`.

    `position` is the store's input position at the moment of the answer. `execution_info` has lines
    when the request asked for them.
    """

    __slots__ = ("_value", "execution_info", "failure", "message", "position")

    def __init__(
        self,
        value: R | None,
        failure: FailureReason | None = None,
        message: str = "",
        *,
        position: Position | None = None,
        execution_info: tuple[str, ...] = (),
    ) -> None:
        self._value: R | None = value
        self.failure: FailureReason | None = failure
        self.message: str = message
        self.position: Position = position or Position.empty()
        self.execution_info: tuple[str, ...] = execution_info

    @property
    def is_success(self) -> bool:
        """Whether there is an answer, which may be None."""
        return self.failure is None

    @property
    def value(self) -> R | None:
        """The answer. Raises QueryFailed if there is no answer."""
        if self.failure is not None:
            raise QueryFailed(self.message, reason=self.failure)
        return self._value

    def __repr__(self) -> str:
        what = (
            f"value={self._value!r:.200}"
            if self.failure is None
            else f"{self.failure.name}: {self.message}"
        )
        return f"<QueryResult {what}, {self.position!r}>"


@final
class StateQueryResult(Generic[R]):
    """The answers to a request: by partition, or the answer of a global store."""

    __slots__ = ("global_result", "partition_results")

    def __init__(
        self,
        partition_results: Mapping[int, QueryResult[R]],
        global_result: QueryResult[R] | None = None,
    ) -> None:
        self.partition_results: Mapping[int, QueryResult[R]] = partition_results
        self.global_result: QueryResult[R] | None = global_result

    @property
    def only_partition_result(self) -> QueryResult[R] | None:
        """The result of the only partition with a match; None without a match.

        Raises ValueError for several matches.
        """
        found = [
            result
            for result in self.partition_results.values()
            if result.is_success and result.value is not None
        ]
        if len(found) > 1:
            raise ValueError(f"{len(found)} partitions have a result, not one: {self!r}")
        return found[0] if found else None

    @property
    def position(self) -> Position:
        """The position of all stores together, as the bound for later queries."""
        if self.global_result is not None:
            return self.global_result.position
        position = Position.empty()
        for result in self.partition_results.values():
            position = position.merge(result.position)
        return position

    def __repr__(self) -> str:
        return f"<StateQueryResult {self.global_result or dict(self.partition_results)!r}>"


class LagInfo(NamedTuple):
    """The lag of a store's partition behind its changelog.

    The end offset is the offset of the next record.
    """

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """The number of missing offsets."""
        return max(0, self.end_offset_position - self.current_offset_position)
