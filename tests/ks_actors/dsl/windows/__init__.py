"""Tests of windows of the calendar, and of the user's own."""
