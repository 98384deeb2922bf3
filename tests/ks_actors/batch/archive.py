"""A JVM's archive of Spark's classes, which the first run of the tests makes: each Spark then starts with half of the CPU time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Final

import pyspark

from ks_actors.batch import SparkSettings
from ks_actors.batch.spark._session import SparkSession

ROOT: Final = Path(__file__).parents[3]
OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_JAVA: Final = str(Path(shutil.which("java") or "java").resolve())
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ks-actors-tests"
_ARCHIVE: Final = _CACHE / f"spark-{pyspark.__version__}-{zlib.crc32(_JAVA.encode()):08x}.jsa"
# A JVM that finds no archive, or one of other jars, goes without.
WITH_ARCHIVE: Final = f"{OPTIONS} -XX:SharedArchiveFile={_ARCHIVE}"


def make() -> None:
    """Make the archive if there is none, in a Spark that leaves it at its end; there is still none when that takes too long."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "spark-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _ARCHIVE.exists():
            with tempfile.TemporaryDirectory(prefix="spark-", dir=_CACHE) as directory:
                subprocess.run([sys.executable, "-m", __name__, directory], cwd=ROOT, check=True, capture_output=True)  # noqa: S603 - ourselves
                if (fresh := Path(directory) / "classes.jsa").exists():
                    fresh.rename(_ARCHIVE)


def _use(directory: str) -> None:
    """Have Spark do what tests ask of it."""
    conf = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": f"{OPTIONS} -XX:ArchiveClassesAtExit={directory}/classes.jsa"}
    session = SparkSession(SparkSettings(master="local[2,2]", driver_memory="1g", conf=conf))
    try:
        spark, rows = session.spark, f"{directory}/rows"
        spark.range(4).mapInArrow(lambda batches: batches, "id long").count()
        spark.range(100).selectExpr("id % 7 as key", "id").groupBy("key").count().sort("key").write.parquet(rows)
        spark.read.parquet(rows).join(spark.range(5).withColumnRenamed("id", "key"), "key").orderBy("key").toPandas()
        stream = spark.readStream.format("rate").load().writeStream.trigger(availableNow=True)
        stream.format("parquet").start(f"{directory}/stream", checkpointLocation=f"{directory}/checkpoint").awaitTermination()
    finally:
        session.close()


if __name__ == "__main__":
    _use(sys.argv[1])
