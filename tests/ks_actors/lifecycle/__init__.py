"""Tests of background tasks, state machines and slow calls."""
