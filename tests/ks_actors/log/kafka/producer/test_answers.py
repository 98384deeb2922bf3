"""Each error code that a broker may answer to a producer, and what comes of it."""

from __future__ import annotations

from functools import partial

import pytest

from tests.ks_actors.log.kafka.consumer.scripted import in_virtual_time
from tests.ks_actors.log.kafka.producer.answer_codes import REQUESTS, TABLE, others, outcome_of


def test_each_code_has_its_outcome() -> None:
    """The request is repeated, or fails as the table says; afterwards the producer goes on, and readers see what it was told."""
    for request in REQUESTS:
        wanted = {code: row.outcome for row in TABLE if row.request == request for code in row.codes}
        assert {code: in_virtual_time(partial(outcome_of, request, code)) for code in wanted} == wanted, request


@pytest.mark.nightly
@pytest.mark.heavy("1,600 runs of a producer")
def test_no_code_is_the_end_of_a_producer() -> None:
    """A code that brokers have for other requests, or in a later version, fails a call or is repeated."""
    for request in REQUESTS:
        for code in others(request):
            in_virtual_time(partial(outcome_of, request, code))
