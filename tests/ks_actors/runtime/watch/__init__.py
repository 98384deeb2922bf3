"""Tests of health and of the watchdog."""
