"""Runs of Kafka's own test drivers: a broker, members of an app, faults, and the driver that judges."""
