"""Judge an app of ours by Kafka's SmokeTestDriver: `make judge-smoke`."""

from __future__ import annotations

import sys
from functools import partial

from tests.judges.drivers.told import command
from tests.judges.smoke.judge import SmokeOptions, judge

options = SmokeOptions.parse(sys.argv[1:], "Kafka's SmokeTestDriver judges an app of ours: see docs/judges.md.")
sys.exit(command(options, partial(judge, options)))
