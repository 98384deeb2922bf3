"""The job's data: inputs, intermediate values and results.

All types are frozen: the stores keep such values by reference from one commit to the next.
"""

from __future__ import annotations

from msgspec import Struct, field

HARD, FAR = 0.1, 3  # inches of rain in an hour, miles
LATE = 15
"""Minutes of delay that make a flight late, as in the statistics of the United States."""


class Flight(Struct, frozen=True, gc=False):
    """A parsed row of flights.csv.

    Delays are minutes, negative when early; `hour` is the scheduled hour of departure.
    """

    origin: str
    hour: str
    carrier: str
    tailnum: str
    destination: str
    departure_delay: int
    arrival_delay: int


class Weather(Struct, frozen=True, gc=False):
    """The weather of one hour at one airport."""

    precipitation: float = field(name="precip")  # inches
    visibility: float = field(name="visib")  # miles

    @property
    def bad(self) -> bool:
        """Whether it rains hard or visibility is low."""
        return self.precipitation >= HARD or self.visibility < FAR


class Plane(Struct, frozen=True, gc=False):
    """One aircraft, by its tail number."""

    model: str
    seats: int


class Airport(Struct, frozen=True, gc=False):
    """One airport, by its code."""

    name: str


class Airline(Struct, frozen=True, gc=False):
    """One airline, by its code."""

    name: str


class Departure(Struct, frozen=True, array_like=True, gc=False):
    """A flight with its destination and the weather at its departure (None if unknown)."""

    carrier: str
    tailnum: str
    destination: str
    departure_delay: int
    arrival_delay: int
    bad_weather: bool | None = None


class Boarding(Struct, frozen=True, array_like=True, gc=False):
    """A departure with its aircraft's model."""

    model: str
    seats: int
    departure_delay: int
    arrival_delay: int


class HourlyDelays(Struct, frozen=True, gc=False):
    """Result per origin and hour; delays are sums of minutes."""

    flights: int = 0
    late: int = 0
    departure_delay: int = 0
    arrival_delay: int = 0


class CarrierDelays(Struct, frozen=True, gc=False):
    """Delays of a carrier; `worst` is the greatest arrival delay and its destination.

    Of several equal delays, it has the last destination by name.
    """

    flights: int = 0
    late: int = 0
    departure_delay: int = 0
    arrival_delay: int = 0
    bad_weather: int = 0
    late_in_bad_weather: int = 0
    unknown_weather: int = 0
    worst: tuple[int, str] = (-1_000, "")


class CarrierReport(Struct, frozen=True, gc=False):
    """Result per carrier: its delays, under its name."""

    airline: str
    delays: CarrierDelays


class ModelDelays(Struct, frozen=True, gc=False):
    """Result per model of aircraft; `seats` is the sum over its flights."""

    flights: int = 0
    seats: int = 0
    late: int = 0
    departure_delay: int = 0
    arrival_delay: int = 0
