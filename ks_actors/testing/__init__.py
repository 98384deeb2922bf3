"""Test topologies and apps: record by record without a log, or whole apps on the embedded log in virtual time."""

from ks_actors.testing._driver import AsyncTopologyTestDriver, TopologyTestDriver
from ks_actors.testing._topics import TestInputTopic, TestOutputTopic, TestRecord

__all__ = ["AsyncTopologyTestDriver", "TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]
