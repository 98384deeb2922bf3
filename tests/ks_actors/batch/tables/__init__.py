"""Tests of records as Arrow tables and Parquet."""
