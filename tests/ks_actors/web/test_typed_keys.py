"""Rows that are asked for by keys that a person types."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from ks_actors import App, Batch, StreamsBuilder, StreamsConfig, serdes
from ks_actors.cli._main import ks_actors
from ks_actors.cli._remote import WAYS
from ks_actors.dsl import Consumed, Materialized
from ks_actors.log import NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.web import serve_page
from ks_actors.web._answers import Refusal
from ks_actors.web._typed_keys import typed_keys
from tests.waiting import PATIENCE_S


class Place(msgspec.Struct, frozen=True):
    """A key with a field."""

    id: int


ID = UUID(int=7)


@asynccontextmanager
async def table(tmp_path: Path, serde: serdes.Serde[Any], *keys: Any, **settings: Any) -> AsyncIterator[str]:
    """Run an app with a table that has rows with these keys; yield the address of its page."""
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic("rows", 1)])
    producer = await log.producer(client_id="test")
    serialize = serde.serializer("rows", is_key=True)
    batch = Batch([serialize(key) for key in keys], [b"row"] * len(keys), [1] * len(keys))
    await producer.send([Outgoing(TopicPartition("rows", 0), batch)])
    await producer.close()
    builder = StreamsBuilder()
    builder.table("rows", Consumed(serde, serdes.STRING), materialized=Materialized("table"))
    config = StreamsConfig.of({"application_id": "typed", "state_dir": str(tmp_path), **settings})
    async with App(builder.build(), config, log=log) as app, serve_page(app) as page:
        await app.wait_until_caught_up()
        yield page.url
    await log.close()


async def ask(url: str, **asked: str) -> list[Any]:
    """Return the keys of the rows of an answer."""
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        answer = await client.get("api/stores/table", params=asked)
        assert answer.status_code == 200, answer.text
        return [row["key"] for row in answer.json()["rows"]]


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize(
    ("serde", "key", "text"),
    [
        (serdes.json(int), 4711, "4711"),
        (serdes.json(), 4711, "4711"),
        (serdes.json(), "4711", "4711"),
        (serdes.json(str), "a text", "a text"),
        (serdes.json(Place), Place(1), '{"id": 1}'),
        (serdes.msgpack(int), 5, "5"),
        (serdes.UUID, ID, str(ID)),
        (serdes.LONG, 5, "5"),
        (serdes.DOUBLE, 5.0, "5"),
        (serdes.FLOAT, 0.1, "0.1"),
        (serdes.BOOLEAN, False, "false"),
        (serdes.STRING, "4711", "4711"),
        (serdes.STRING, "", ""),
        (serdes.BYTES, b"abc", "abc"),
        (serdes.BYTES, b"1234", "1234"),
        (serdes.BYTES, b"\x12\x34", "1234"),
        (serdes.BYTES, b"\xff\x00\x01", "/wAB"),
        (serdes.list_of(serdes.INTEGER), [1, 2], "[1, 2]"),
    ],
)
async def test_a_row_is_found_by_the_text_of_its_key(tmp_path: Path, serde: serdes.Serde[Any], key: Any, text: str, store: str) -> None:
    """By any serde, as text, JSON, hex or base64, in a database and in memory."""
    async with table(tmp_path, serde, key, default_dsl_store=store) as url:
        (shown,) = await ask(url)
        assert await ask(url, key=text) == [shown]
        assert await ask(url, **{"from": text, "to": text}) == [shown]


async def test_the_form_of_a_key_tells_a_number_from_a_text(tmp_path: Path) -> None:
    """Without one, the first form that has a row answers."""
    async with table(tmp_path, serdes.json(), 4711, "4711") as url:
        assert await ask(url, key="4711") == ["4711"]
        assert await ask(url, key="4711", **{"as": "text"}) == ["4711"]
        assert await ask(url, key="4711", **{"as": "json"}) == [4711]

        def command(key: str) -> Any:
            return CliRunner().invoke(ks_actors, ["query", "table", f"--key={key}", "--as=json", "--json", f"--url={url}"])

        found = await asyncio.to_thread(command, "4711")
        assert [row["key"] for row in json.loads(found.output)["rows"]] == [4711]
        found = await asyncio.to_thread(command, "abc")
        assert (found.exit_code, "the store's keys are not made of 'abc', read as json" in found.output) == (1, True)


async def test_an_empty_text_is_a_key(tmp_path: Path) -> None:
    """A variable that is not set does not ask for all rows."""
    async with table(tmp_path, serdes.STRING, "a", "b") as url:
        assert await ask(url, key="") == []
        assert await ask(url, to="") == []
        assert await ask(url, **{"from": ""}) == ["a", "b"]
        found = await asyncio.to_thread(CliRunner().invoke, ks_actors, ["query", "table", "--key", "", f"--url={url}"])
        assert found.exit_code == 3
        found = await asyncio.to_thread(CliRunner().invoke, ks_actors, ["query", "table", "--to", "", f"--url={url}"])
        assert found.exit_code == 3


async def test_rows_with_headers_are_asked_as_others(tmp_path: Path) -> None:
    """Stores of the format HEADERS have keys and values, too."""
    async with table(tmp_path, serdes.STRING, "a", dsl_store_format="HEADERS") as url:
        assert await ask(url) == ["a"]
        assert await ask(url, key="a") == ["a"]


@pytest.mark.parametrize(
    ("serde", "text"),
    [(serdes.json(int), "abc"), (serdes.UUID, "abc"), (serdes.LONG, ""), (serdes.LONG, "true"), (serdes.json(), "\ud800")],
)
def test_a_text_that_is_no_key_is_refused(serde: serdes.Serde[Any], text: str) -> None:
    """A serde that writes an object of another type cannot read it back."""
    with pytest.raises(Refusal, match="the store's keys are not made of"):
        typed_keys(serde, {"key": text}, "auto")


def test_both_ends_of_a_range_are_read_in_the_same_way() -> None:
    """A range of a text and a number has no order."""
    assert typed_keys(serdes.BYTES, {"from": "12", "to": "zz"}, "auto") == [{"from": b"12", "to": b"zz"}]
    assert typed_keys(serdes.json(), {"from": "12", "to": "zz"}, "auto") == [{"from": "12", "to": "zz"}]


@pytest.mark.parametrize("way", WAYS)
def test_the_command_line_has_the_forms_of_the_api(way: str) -> None:
    """Each form that `--as` offers is one that the API knows."""
    assert typed_keys(serdes.STRING, {}, way) == [{}]
