"""Both guarantees, for each test that takes one."""

import pytest

from tests.ks_actors.runtime.helpers import GUARANTEES


@pytest.fixture(params=GUARANTEES)
def guarantee(request: pytest.FixtureRequest) -> str:
    return str(request.param)
