"""Tests of topologies record by record without a log, or of whole apps in virtual time.

Apps run on the embedded log.
"""

from ks_actors.registry import InMemoryRegistry
from ks_actors.testing._driver import AsyncTopologyTestDriver, TopologyTestDriver
from ks_actors.testing._harness import AppHarness
from ks_actors.testing._run_app import explore_app, run_app
from ks_actors.testing._topic_serdes import topic_serdes as topic_serdes
from ks_actors.testing._topics import (
    AsyncTestInputTopic,
    TestInputTopic,
    TestOutputTopic,
    TestRecord,
)

__all__ = [
    "AppHarness",
    "AsyncTestInputTopic",
    "AsyncTopologyTestDriver",
    "InMemoryRegistry",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopologyTestDriver",
    "explore_app",
    "run_app",
]
