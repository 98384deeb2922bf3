"""Visits of pages, counted behind HTTP, with ks-actors in FastAPI."""

import uvicorn
from fastapi import FastAPI
from ks_actors import App, StreamsBuilder, Topic

builder = StreamsBuilder()
builder.stream(Topic("visits", str, str)).group_by_key().count("counts")
streams = App(builder, "page-counter", "localhost:9092")
api = FastAPI(lifespan=streams.lifespan)


@api.post("/visit/{page}")
async def visit(page: str) -> None:
    await streams.send("visits", page, "")


@api.get("/count/{page}")
async def read(page: str) -> dict[str, int]:
    return {"count": await streams.store("counts").get(page) or 0}


if __name__ == "__main__":
    uvicorn.run(api, port=8080)
