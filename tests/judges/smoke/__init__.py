"""The judge that Kafka's own system tests have: SmokeTestDriver feeds an app, and verifies what it wrote."""
