"""The number of examples that a property test tries: few while somebody waits, many at night."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Examples are the same in each run: a change fails by its own fault, not by a new draw. Only `nightly` draws anew.
_FACTORS = {"quick": 0.2, "house": 1.0, "nightly": 5.0}
_LEAST = 5


def register_profiles() -> None:
    """Register the profiles, and load the one of a run that names none."""
    for name, factor in _FACTORS.items():
        settings.register_profile(
            name,
            # The time of an example depends on the machine and its load, not on the tested code.
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
            derandomize=name != "nightly",
            max_examples=round(100 * factor),
        )
    settings.load_profile("house")


def examples(count: int) -> int:
    """Scale the number of examples of one test by the profile of the run; `house` tries so many."""
    return max(min(count, _LEAST), round(count * _FACTORS[settings.get_current_profile_name()]))
