"""Records as Arrow tables and Parquet files; imports pyarrow."""
