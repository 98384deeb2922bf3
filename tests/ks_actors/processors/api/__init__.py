"""Tests of the Processor API."""
