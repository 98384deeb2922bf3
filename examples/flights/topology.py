"""The topology: one stream and four tables in, three tables out.

    flights ─┬─ per origin and hour ────────────────────────────────────────────► delays-by-hour
             └─ airport ─ weather ─┬─ per carrier ─ airline ────────────────────► delays-by-carrier
                                   └─ plane ─ per model ────────────────────────► delays-by-model

Rows that are no flight go to the dead letters: that is a setting of the app, not of the topology.
"""

from __future__ import annotations

from ks_actors import Consumed, Grouped, Joined, Materialized, Produced, StreamsBuilder, TimeWindows, Topology
from ks_actors.serdes import STRING, Serde, json, msgpack, windowed

from .model import (
    LATE,
    Airline,
    Airport,
    Boarding,
    CarrierDelays,
    CarrierReport,
    Departure,
    Flight,
    HourlyDelays,
    ModelDelays,
    Plane,
    Weather,
)

HOUR = 3_600_000
GRACE = 24 * HOUR  # flights are reported on departure, the latest after 22 hours
KEPT = 400 * 24 * HOUR  # all hours: after an at-least-once crash, old flights repeat

FLIGHTS, WEATHER, PLANES, AIRPORTS, AIRLINES = "flights", "weather", "planes", "airports", "airlines"
BY_HOUR, BY_CARRIER, BY_MODEL, DEAD_LETTERS = "delays-by-hour", "delays-by-carrier", "delays-by-model", "flights-dead-letters"


def parse(row: bytes) -> Flight:
    """Parse a row of flights.csv.

    Raises ValueError for one without delays: the flight was cancelled or diverted.
    """
    _, _, _, _, _, departure_delay, _, _, arrival_delay, carrier, _, tailnum, origin, destination, _, _, _, _, hour = row.decode().split(",")
    return Flight(origin, hour, carrier, tailnum, destination, int(departure_delay), int(arrival_delay))


def unparse(flight: Flight) -> bytes:
    """Refuse: the job never writes rows."""
    raise NotImplementedError(f"rows are only read, and this is one: {flight}")


ROW = Serde.of(unparse, parse, immutable=True, name="row of flights.csv")
HOURLY_KEY = windowed(STRING, HOUR)


def build() -> Topology:
    """Return the topology."""
    builder = StreamsBuilder()
    flights = builder.stream(FLIGHTS, Consumed(STRING, ROW))  # by origin
    weather = builder.table(WEATHER, Consumed(STRING, json(Weather)))  # by origin and hour
    planes = builder.table(PLANES, Consumed(STRING, json(Plane)))  # by tail number
    airports = builder.global_table(AIRPORTS, Consumed(STRING, json(Airport)))
    airlines = builder.global_table(AIRLINES, Consumed(STRING, json(Airline)))

    by_hour = (
        flights.group_by_key()
        .windowed_by(TimeWindows.of_size_and_grace(HOUR, GRACE))
        .aggregate(HourlyDelays, add_to_hour, Materialized(BY_HOUR, STRING, msgpack(HourlyDelays), retention_ms=KEPT))
    )
    by_hour.to_stream().to(BY_HOUR, Produced(HOURLY_KEY, json(HourlyDelays)))

    departures = (
        flights.select_key(lambda _, flight: f"{flight.origin}|{flight.hour}")
        .left_join(airports, lambda _, flight: flight.destination, depart)
        .left_join(weather, with_weather, Joined(STRING, msgpack(Departure), name="weather"))
    )

    by_carrier = departures.group_by(lambda _, departure: departure.carrier, Grouped(STRING, msgpack(Departure), "carrier")).aggregate(
        CarrierDelays, add_to_carrier, Materialized(BY_CARRIER, STRING, msgpack(CarrierDelays))
    )
    (by_carrier.to_stream().join(airlines, lambda carrier, _: carrier, under_its_name).to(BY_CARRIER, Produced(STRING, json(CarrierReport))))

    by_model = (
        departures.select_key(lambda _, departure: departure.tailnum)
        .left_join(planes, board, Joined(STRING, msgpack(Departure), name="plane"))
        .group_by(lambda _, boarding: boarding.model, Grouped(STRING, msgpack(Boarding), "model"))
        .aggregate(ModelDelays, add_to_model, Materialized(BY_MODEL, STRING, msgpack(ModelDelays)))
    )
    by_model.to_stream().to(BY_MODEL, Produced(STRING, json(ModelDelays)))
    return builder.build()


def depart(flight: Flight, airport: Airport | None) -> Departure:
    """Join a flight with its destination, which stays a code if the airport is unknown."""
    destination = flight.destination if airport is None else airport.name
    return Departure(flight.carrier, flight.tailnum, destination, flight.departure_delay, flight.arrival_delay)


def with_weather(departure: Departure, weather: Weather | None) -> Departure:
    """Join a departure with the weather of its hour."""
    return Departure(
        departure.carrier,
        departure.tailnum,
        departure.destination,
        departure.departure_delay,
        departure.arrival_delay,
        None if weather is None else weather.bad,
    )


def board(departure: Departure, plane: Plane | None) -> Boarding:
    """Join a departure with its plane."""
    if plane is None:
        return Boarding("unknown", 0, departure.departure_delay, departure.arrival_delay)
    return Boarding(plane.model, plane.seats, departure.departure_delay, departure.arrival_delay)


def under_its_name(delays: CarrierDelays | None, airline: Airline) -> CarrierReport:
    """Join a carrier's delays with its name.

    In general None means a deleted key; this table deletes none.
    """
    return CarrierReport(airline.name, delays or CarrierDelays())


def add_to_hour(_: str, flight: Flight, delays: HourlyDelays) -> HourlyDelays:
    """Count a flight into its hour."""
    return HourlyDelays(
        delays.flights + 1,
        delays.late + (flight.arrival_delay >= LATE),
        delays.departure_delay + flight.departure_delay,
        delays.arrival_delay + flight.arrival_delay,
    )


def add_to_carrier(_: str, departure: Departure, delays: CarrierDelays) -> CarrierDelays:
    """Count a departure into its carrier."""
    late = departure.arrival_delay >= LATE
    bad = departure.bad_weather is True
    worst = (departure.arrival_delay, departure.destination)
    return CarrierDelays(
        delays.flights + 1,
        delays.late + late,
        delays.departure_delay + departure.departure_delay,
        delays.arrival_delay + departure.arrival_delay,
        delays.bad_weather + bad,
        delays.late_in_bad_weather + (late and bad),
        delays.unknown_weather + (departure.bad_weather is None),
        max(worst, delays.worst),
    )


def add_to_model(_: str, boarding: Boarding, delays: ModelDelays) -> ModelDelays:
    """Count a departure into the model of its plane."""
    return ModelDelays(
        delays.flights + 1,
        delays.seats + boarding.seats,
        delays.late + (boarding.arrival_delay >= LATE),
        delays.departure_delay + boarding.departure_delay,
        delays.arrival_delay + boarding.arrival_delay,
    )
