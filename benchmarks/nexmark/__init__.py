"""Nexmark's queries in the DSL, beside Kafka Streams', with the events of a generator that nobody here wrote."""
