"""Add up what each customer pays: a whole program in ten lines.

Run: KS_ACTORS_LOG=memory:// python examples/ten_lines.py
On Kafka: KS_ACTORS_BOOTSTRAP_SERVERS=localhost:9092 python examples/ten_lines.py
"""

import asyncio

from ks_actors import App, StreamsBuilder, StreamsConfig, Topic

builder = StreamsBuilder()
builder.stream(Topic("payments", str, int)).group_by_key().reduce(int.__add__, "totals")


async def main() -> None:
    async with App(builder, StreamsConfig.load(application_id="sums", default_dsl_store="in_memory"), topics={"payments": 4}) as app:
        await app.send_many("payments", [("ann", 450), ("bob", 1200), ("ann", 3900)])
        await app.wait_until_caught_up()
        print(sorted(await app.store("totals").all()))


asyncio.run(main())
