"""The judge of ksql's compiled plans: their steps become calls of the DSL, and their records are compared."""
