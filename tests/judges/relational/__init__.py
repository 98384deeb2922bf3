"""The judge of joins by a foreign key that Kafka's own system tests have: RelationalSmokeTest feeds an app, and verifies its tables."""
