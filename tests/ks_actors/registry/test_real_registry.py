"""Apps and the client with a real registry."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ks_actors import serdes
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.registry import RegistryError, Schema, SchemaIncompatible, SchemaNotFound, SchemaRegistry
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.ks_actors.registry.apicurio import apicurio
from tests.ks_actors.registry.messages import ORDER, Order, PbOrder, pb_order

pytestmark = [pytest.mark.nightly, pytest.mark.heavy("it starts a server in Java")]
FORMATS: dict[str, Any] = {
    "avro": (lambda registry: registry.avro(Order), ORDER),
    "json": (lambda registry: registry.json_schema(Order), ORDER),
    "protobuf": (lambda registry: registry.protobuf(PbOrder), pb_order()),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.mark.parametrize("name", FORMATS)
def test_an_app_writes_and_another_reads(name: str, url: str) -> None:
    """With clients of their own: the reader finds the ids of the writer's schemas before it decodes."""
    make, value = FORMATS[name]
    first, second = f"{name}-first", f"{name}-second"
    builder = StreamsBuilder()
    writer, reader = make(SchemaRegistry(url)), make(SchemaRegistry(url))
    builder.stream("in", Consumed(serdes.STRING, serdes.BYTES)).map_values(lambda _: value).to(first, Produced(serdes.STRING, writer))
    builder.stream(first, Consumed(serdes.STRING, reader)).to(second, Produced(serdes.STRING, reader))

    async def test(harness: AppHarness) -> None:
        await harness.produce_all("in", [TestRecord("k", b"", 1)])
        await harness.caught_up()
        assert [record.value for record in await harness.read(second)] == [value]

    run_app(test, builder.build(), topics={"in": 1, first: 1, second: 1})


async def test_the_registry_tells_errors_as_the_client_expects(url: str) -> None:
    """Schemas that it lacks, that are incompatible, and that are none."""
    registry = SchemaRegistry(url)
    one, other = (Schema(f'{{"type": "record", "name": "R", "fields": [{{"name": "{name}", "type": "long"}}]}}') for name in "ab")
    registered = await registry.register("rules", one)
    assert await registry.versions("rules") == [registered.version]
    level = urllib.request.Request(f"{url}/config/rules", b'{"compatibility": "BACKWARD"}', {"Content-Type": "application/json"}, method="PUT")  # noqa: S310 - ours
    urllib.request.urlopen(level).close()  # noqa: ASYNC210, S310 - ours, and nothing else runs
    assert await registry.incompatibilities("rules", other)
    with pytest.raises(SchemaIncompatible):
        await registry.register("rules", other)
    for missing in (registry.schema(99_999), registry.latest("none"), registry.lookup("rules", other)):
        with pytest.raises(SchemaNotFound):
            await missing
    with pytest.raises(RegistryError):
        await registry.register("rules", Schema('{"type": "nonsense"}'))
