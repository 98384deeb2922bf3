"""Tables with values that a user's object computes."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors._errors import TopologyError
from ks_actors.processors import PunctuationType, RecordMetadata, ValueTransformer
from ks_actors.processors.tables._transform import TableTransformValues, TransformView
from ks_actors.processors.tables._views import StoreView
from ks_actors.records._task_id import TaskId
from tests.ks_actors.processors.helpers import DictStore, Node

MADE: list[Numbered] = []


class Numbered(ValueTransformer[str, str, str]):
    """Appends the number of the call; "gone" is no row."""

    def __init__(self) -> None:
        self.calls = 0
        self.closed = False
        MADE.append(self)

    def transform(self, key: str, value: str | None) -> str | None:
        self.calls += 1
        return None if value == "gone" else f"{key}{value}{self.calls}"

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.fixture(autouse=True)
def _made() -> None:
    MADE.clear()


def transformed(stored: bool, send_old: bool, *changes: tuple[Any, Any]) -> tuple[list[Any], DictStore]:
    store = DictStore()
    node = Node({"s": store})
    bound = TableTransformValues(supplier=Numbered, transformer=Numbered, store="s" if stored else None, send_old=send_old).bind(node)
    assert bound.batch is None
    for change in changes:
        bound.process("k", change, 5, ())
    bound.close()
    assert [transformer.closed for transformer in MADE] == [True]
    return [row.value for row in node.rows], store


def test_new_values_are_transformed_deletes_too() -> None:
    """Unlike map_values, which never sees None."""
    assert transformed(False, False, ("v", "o"), (None, "o"))[0] == [("kv1", None), ("kNone2", None)]


def test_old_values_of_an_unstored_table_are_transformed_after_the_new_ones() -> None:
    """By the same object, as Kafka Streams does."""
    assert transformed(False, True, ("v", "o"))[0] == [("kv1", "ko2")]


def test_a_stored_table_takes_old_values_from_its_store() -> None:
    """The transformer is called once per change."""
    values, store = transformed(True, True, ("v", "o"), ("w", "v"), ("gone", "w"))
    assert values == [("kv1", None), ("kw2", "kv1"), (None, "kw2")]
    assert store.entries == {}
    assert transformed.__name__


def test_a_stored_table_without_old_values_does_not_look_them_up() -> None:
    """It only puts."""
    MADE.clear()
    values, store = transformed(True, False, ("v", "o"))
    assert values == [("kv1", None)]
    assert store.entries == {"k": ("kv1", 5)}


def test_a_view_of_a_transformed_table_has_a_transformer_of_its_own() -> None:
    """It is asked at every read, also for rows that are not there, and knows of no current record meanwhile."""
    store = DictStore()
    store.entries = {"a": ("v", 9), "b": ("gone", 9)}
    node = Node({"s": store})
    node.metadata = RecordMetadata("t", 0, 1)
    view = TransformView(StoreView("s"), Numbered, ("own", "s"))
    get, close, _ = view.bind(node)
    assert [get(key) for key in ("a", "b", "c")] == [("av1", 9), None, ("cNone3", -1)]
    close()
    assert view.stores == ("s", "own")
    assert MADE[0].closed
    assert MADE[0].context.record_metadata() == RecordMetadata("t", 0, 1)


def test_reading_hides_the_current_record() -> None:
    """A row that is read for somebody else's record did not come with it."""
    node = Node({"s": DictStore()})
    node.metadata = RecordMetadata("t", 0, 1)
    seen: list[RecordMetadata | None] = []

    class Looking(ValueTransformer[str, str, str]):
        def transform(self, key: str, value: str | None) -> str | None:
            seen.append(self.context.record_metadata())
            return None

    TransformView(StoreView("s"), Looking).bind(node).get("a")
    TableTransformValues(supplier=Looking, transformer=Looking).bind(node).process("a", ("v", None), 1, ())
    assert seen == [None, RecordMetadata("t", 0, 1)]


def test_the_context_of_a_transformer_does_all_but_forwarding() -> None:
    """It asks the task; forwarding is refused with a hint."""
    node = Node({"s": DictStore()})
    TableTransformValues(supplier=Numbered, transformer=Numbered).bind(node)
    context = MADE[0].context
    assert (context.application_id, context.task_id) == ("app", TaskId(0, 0))
    assert context.get_state_store("s") is node.stores["s"]
    context.schedule(5, PunctuationType.STREAM_TIME, lambda _: None, 7)
    context.commit()
    assert (node.scheduled, node.commits) == ([(5, PunctuationType.STREAM_TIME, 7)], 1)
    assert (context.current_stream_time_ms(), context.current_system_time_ms()) == (-1, 1_000)
    with pytest.raises(TopologyError, match="return the value"):
        context.forward(None)  # type: ignore[arg-type]  # nothing can be forwarded, that is the point


async def _async_punctuator(_: int) -> None:
    """Be refused."""


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ((-5, PunctuationType.STREAM_TIME, print), ValueError, "node NODE cannot punctuate with interval_ms -5"),
        ((0, PunctuationType.WALL_CLOCK_TIME, print), ValueError, "node NODE cannot punctuate with interval_ms 0"),
        (("1s", PunctuationType.STREAM_TIME, print), TypeError, "interval_ms of a punctuator of node NODE is '1s'"),
        ((1, "STREAM_TIME", print), TypeError, "node NODE cannot punctuate by 'STREAM_TIME'"),
        ((1, PunctuationType.STREAM_TIME, _async_punctuator), TypeError, "of node NODE is 'async def'"),
        ((1, PunctuationType.STREAM_TIME, lambda: None), TopologyError, "punctuator of node NODE cannot be called"),
        ((1, PunctuationType.STREAM_TIME, print, -1), ValueError, "node NODE cannot punctuate with start_ms -1"),
    ],
)
def test_a_wrong_schedule_of_a_transformer_is_refused_in_the_call(arguments: tuple[Any, ...], kind: type[Exception], told: str) -> None:
    """By the errors that processors get; nothing is scheduled."""
    node = Node({})
    bound = TableTransformValues(supplier=Numbered, transformer=Numbered).bind(node)
    with pytest.raises(kind, match=told):
        MADE[0].context.schedule(*arguments)
    assert node.scheduled == []
    bound.close()


class Quiet(Numbered):
    """Overrides `init` without a call of its base."""

    def init(self, context: Any) -> None:
        self.stream_time = self.context.current_stream_time_ms()


def test_a_transformer_has_its_context_without_a_call_of_super() -> None:
    """Already in its `init`, as processors have."""
    node = Node({})
    node.time = 7
    TableTransformValues(supplier=Quiet, transformer=Quiet).bind(node).close()
    [made] = MADE
    assert isinstance(made, Quiet)
    assert made.stream_time == 7
