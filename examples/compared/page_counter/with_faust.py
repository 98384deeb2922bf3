"""Visits of pages, counted behind HTTP, with Faust and its own web server."""

import faust

app = faust.App(
    "page-counter",
    broker="kafka://localhost:9092",
    topic_partitions=2,
    web_port=8080,
)
visits = app.topic("visits", key_type=str, value_type=str)
counts = app.Table("visits-by-page", key_type=str, default=int)


@app.agent(visits)
async def count(stream):
    async for page, _ in stream.items():
        counts[page] += 1


@app.page("/visit/{page}")
async def visit(web, request, page):
    await visits.send(key=page, value="")
    return web.json({})


@app.page("/count/{page}")
@app.table_route(table=counts, match_info="page")
async def read(web, request, page):
    return web.json({"count": counts[page]})


if __name__ == "__main__":
    app.main()
