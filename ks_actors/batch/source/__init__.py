"""Topics and stores as DataFrames; imports pyspark."""
