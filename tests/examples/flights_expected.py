"""The expected results of the flights job, computed another way: by polars, from the files, over all rows at once."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from typing import Any, NamedTuple

import polars as pl

from examples.flights.data import FLIGHTS, directory

LATE = pl.col("arr_delay") >= 15


class Expected(NamedTuple):
    """The three tables as plain dicts, and the rows that do not parse, sorted."""

    by_hour: dict[tuple[str, int], tuple[int, ...]]
    by_carrier: dict[str, tuple[Any, ...]]
    by_model: dict[str, tuple[int, ...]]
    dead_letters: list[bytes]


def read(name: str) -> pl.DataFrame:
    return pl.read_csv(directory() / f"{name}.csv", null_values="NA", infer_schema_length=None)


def scheduled() -> pl.Expr:
    """Return the time when a flight should have left, in ms."""
    return pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.epoch("ms") + pl.col("minute") * 60_000


@cache
def rows() -> pl.DataFrame:
    """Return all flights in the order in which they are reported, with their text and their time."""
    with zipfile.ZipFile(directory() / "flights.csv.zip") as archive:
        raw = archive.read("flights.csv")
    flights = pl.read_csv(io.BytesIO(raw), null_values="NA", infer_schema_length=None)
    return flights.with_columns(
        scheduled=scheduled(),
        reported=scheduled() + pl.col("dep_delay").fill_null(0) * 60_000,
        text=pl.Series(raw.decode().splitlines()[1:]),
    ).sort("month", "reported", "scheduled", "origin", "text")


@cache
def expected(limit: int = FLIGHTS) -> Expected:
    """Compute the results of the first `limit` flights."""
    reported = rows().head(limit)
    parses = pl.col("dep_delay").is_not_null() & pl.col("arr_delay").is_not_null()
    flights = reported.filter(parses)
    sums = [pl.len(), LATE.sum(), pl.col("dep_delay").sum(), pl.col("arr_delay").sum().alias("arrival")]

    hour = (pl.col("scheduled") // 3_600_000 * 3_600_000).alias("hour")
    by_hour = flights.group_by("origin", hour).agg(*sums)

    weather = read("weather").select("origin", "time_hour", bad=(pl.col("precip") >= 0.1) | (pl.col("visib") < 3))
    airports = read("airports").select(dest="faa", destination="name")
    joined = (
        flights.join(weather, on=["origin", "time_hour"], how="left")
        .join(airports, on="dest", how="left")
        .join(read("airlines"), on="carrier", how="left")
        .with_columns(pl.col("destination").fill_null(pl.col("dest")))
    )
    bad = pl.col("bad").fill_null(value=False)
    by_carrier = joined.group_by("carrier").agg(
        pl.col("name").first(),
        *sums,
        bad.sum(),
        (bad & LATE).sum().alias("late_in_bad"),
        pl.col("bad").is_null().sum().alias("unknown"),
        pl.struct("arr_delay", "destination").sort().last().alias("worst"),
    )

    planes = read("planes").select("tailnum", "model", "seats")
    by_model = (
        flights.join(planes, on="tailnum", how="left")
        .with_columns(pl.col("model").fill_null("unknown"), pl.col("seats").fill_null(0))
        .group_by("model")
        .agg(pl.len(), pl.col("seats").sum(), *sums[1:])
    )
    return Expected(
        {(origin, start): tuple(rest) for origin, start, *rest in by_hour.iter_rows()},
        {carrier: (*rest, tuple(worst.values())) for carrier, *rest, worst in by_carrier.iter_rows()},
        {model: tuple(rest) for model, *rest in by_model.iter_rows()},
        sorted(text.encode() for text in reported.filter(~parses)["text"]),
    )
