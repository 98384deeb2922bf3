"""Judge an app of ours by Kafka's RelationalSmokeTest: `make judge-relational`."""

from __future__ import annotations

import sys
from functools import partial

from tests.judges.drivers.told import command
from tests.judges.relational.judge import RelationalOptions, judge

options = RelationalOptions.parse(sys.argv[1:], "Kafka's RelationalSmokeTest judges an app of ours: see docs/judges.md.")
sys.exit(command(options, partial(judge, options)))
