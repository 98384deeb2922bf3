"""All values of one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final, overload

from ks_actors.metrics._metric import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ks_actors.metrics._metric import Metric

T = TypeVar("T")
INSTANCE_GROUP: Final = "ks-actors-instance-metrics"
_NO_TAGS: Final[Mapping[str, str]] = {}


@final
class MetricValues:
    """The metrics of an app at one moment.

    Iterate over this object for all values with their tags, or `find` the values of a name.
    `values[name]` is the number of the whole instance: `metrics["process-total"]` counts the
    records of all tasks. `instance()` has all numbers of the instance, `get` has a default, and
    `name in values` checks whether there is such a number.
    """

    __slots__ = ("_all", "_by_name")

    def __init__(self, values: Iterable[Metric]) -> None:
        self._all: tuple[Metric, ...] = tuple(values)
        self._by_name: dict[str, list[Metric]] | None = None

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, name: str) -> float:
        """Return a number of the whole instance.

        Raises KeyError for other metrics, which `find` returns.
        """
        found = self.get(name)
        if found is None:
            raise KeyError(
                f"{name} is not a metric of the instance: use find for those of its workers, "
                "tasks and partitions"
            )
        return found

    def __contains__(self, name: object) -> bool:
        """Return whether the whole instance has a number of this name.

        A `Metric` is looked for among all values.
        """
        return self.get(name) is not None if isinstance(name, str) else name in self._all

    @overload
    def get(self, name: str) -> float | None: ...

    @overload
    def get(self, name: str, default: T) -> float | T: ...

    def get(self, name: str, default: T | None = None) -> float | T | None:
        """Return a number of the whole instance, or the default."""
        for metric in self._named(name):
            if metric.group == INSTANCE_GROUP and isinstance(metric.value, float | int):
                return metric.value
        return default

    def instance(self) -> dict[str, float]:
        """Return the numbers of the whole instance by name; latencies in ms."""
        return {
            metric.name: metric.value
            for metric in self._all
            if metric.group == INSTANCE_GROUP and isinstance(metric.value, float | int)
        }

    def find(
        self,
        name: str,
        tags: Mapping[str, str] = _NO_TAGS,
        *,
        group: str | None = None,
    ) -> tuple[Metric, ...]:
        """Return the values of a name whose tags include `tags`, in no particular order."""
        wanted = tags.items()
        return tuple(
            metric
            for metric in self._named(name)
            if (group is None or metric.group == group) and wanted <= metric.tags.items()
        )

    def total(self, name: str, tags: Mapping[str, str] = _NO_TAGS, *, group: str) -> float:
        """Return the sum of the values that `find` returns: 0 if none, NaN if any is NaN.

        Raises TypeError for texts and histograms.
        """
        found = 0.0
        for metric in self.find(name, tags, group=group):
            if isinstance(metric.value, str | Distribution):
                raise TypeError(f"{name} of {group} is a {metric.kind.value}, which has no sum")
            found += metric.value
        return found

    def _named(self, name: str) -> list[Metric]:
        if self._by_name is None:
            self._by_name = {}
            for metric in self._all:
                self._by_name.setdefault(metric.name, []).append(metric)
        return self._by_name.get(name, [])

    def __repr__(self) -> str:
        return f"<MetricValues: {len(self._all)}>"
