"""The Spark session, from its start to the end of its last process. All calls block."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import JobCancelled, SparkUnavailable
from ks_actors.batch._task_errors import first_line
from ks_actors.batch.spark._connect import (
    OperationProgress,
    check_answers,
    connected,
    disconnected,
    is_gone,
    is_known,
    try_often,
)
from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession as PysparkSession

    from ks_actors.batch.spark._settings import SparkSettings

_NEEDED = ("pyspark", "pandas", "pyarrow")
_NEEDED_TO_CONNECT = (*_NEEDED, "grpc", "grpc_status", "zstandard")
_JVM_END_SECONDS = 20
_log = component_log(__name__)

# Large Arrow batches, UTC times, no speculative execution, no UI port, no progress bar.
_CHOSEN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
_CHOSEN_LOCALLY = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.catalogImplementation": "in-memory",
}


@final
class SparkSession:
    """A session created from settings, or an existing session, which stays open at the end.

    Any thread may use it.
    """

    def __init__(self, settings: SparkSettings) -> None:
        self._settings: SparkSettings = settings
        self._lock = threading.Lock()
        self._spark: Any = None
        self._found: bool = False
        self._closed: bool = False
        self._gone: bool = False
        self.operations = OperationProgress()

    @property
    def spark(self) -> Any:
        """The pyspark session, started on first use and again after its death.

        Raises SparkUnavailable, and JobCancelled after `close`.
        """
        with self._lock:
            return self._got()

    def open(self) -> Any:
        """Return the session for a new job or query.

        A Spark Connect server may have been restarted, so check that it still knows the session.
        Raises the same errors as `spark`.
        """
        with self._lock:
            if self._settings.connects and self._spark is not None and self._lives():
                check_answers(self._settings.master, self._settings.place)
                if not is_known(self._spark):
                    _log.warning(
                        "the Spark Connect server at %s no longer knows the session; the next job "
                        "opens a new one",
                        self._settings.place,
                    )
                    self._end()
            return self._got()

    def _got(self) -> Any:
        if self._closed:
            raise JobCancelled("the batch bridge has ended")
        if self._spark is not None and not self._lives():
            _log.warning("Spark has died; the next job starts a new session")
            self._end()
        if self._spark is None:
            self._spark = self._start()
            self._gone = False
        return self._spark

    @property
    def is_open(self) -> bool:
        """Whether the session was started."""
        return self._spark is not None

    def living(self) -> Any:
        """Return the session if it was started and is alive, else None. Blocks."""
        with self._lock:
            return self._spark if self._spark is not None and self._lives() else None

    def has_lost(self, spark: Any, error: BaseException) -> bool:
        """Return whether the error means that the session has ended, and record that. Blocks."""
        if self._settings.connects and is_gone(error):
            with self._lock:
                # pyspark records this only for the answer to a first request, and sometimes late.
                self._gone = self._gone or self._spark is spark
        return self.living() is not spark

    def give_up(self) -> None:
        """Close the session of an unreachable Spark Connect server, so that waiting calls fail.

        Does nothing if the server answers.
        """
        with self._lock:
            if self._spark is not None and not self._answers():
                self._end()

    def _answers(self) -> bool:
        try:
            check_answers(self._settings.master, self._settings.place)
        except SparkUnavailable:
            return False
        return True

    def _lives(self) -> bool:
        """Return whether the session can still be used; a borrowed session counts as alive."""
        if self._found:
            return True
        if self._settings.connects:
            return not (self._gone or self._spark.is_stopped)
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - lazy

        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError, AttributeError):  # the JVM is gone, or a job has stopped it
            return False

    def _start(self) -> Any:
        settings = self._settings
        check_packages(connects=settings.connects)
        from pyspark.sql import SparkSession as Pyspark  # noqa: PLC0415 - loaded on use

        found: Any = getattr(Pyspark, "_instantiatedSession", None)
        if found is not None and found._sc._jsc is not None and not settings.connects:
            self._found = True
            register(found)
            return found
        if not settings.connects:
            _check_java()
        builder: Any = Pyspark.builder
        builder = (
            builder.remote(settings.master)
            if settings.connects
            else builder.master(settings.master)
        )
        for name, value in self._conf().items():
            builder = builder.config(name, value)
        builder = builder.appName(settings.app_name)
        try:
            spark = self._connected(builder) if settings.connects else self._started(builder)
        except SparkUnavailable:
            raise
        except Exception as error:
            raise SparkUnavailable(
                f"could not open a Spark session at {settings.place}: "
                f"{first_line(error)}{_hint(error, settings)}"
            ) from error
        register(spark)
        return spark

    def _started(self, builder: Any) -> Any:
        with _python(self._settings.python):
            spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        return spark

    def _connected(self, builder: Any) -> Any:
        check_answers(self._settings.master, self._settings.place)
        spark = connected(builder)  # another session may use another server
        try_often(spark)
        spark.registerProgressHandler(self.operations)
        return spark

    def _conf(self) -> dict[str, str]:
        settings = self._settings
        if settings.connects:
            return dict(settings.conf)
        conf = {**_CHOSEN, "spark.driver.memory": settings.driver_memory}
        if settings.master.startswith("local"):
            # Tasks are processes of this machine, so give them this process's import path.
            conf |= {
                **_CHOSEN_LOCALLY,
                "spark.executorEnv.PYTHONPATH": os.pathsep.join(path or "." for path in sys.path),
            }
        return conf | dict(settings.conf)

    def close(self) -> None:
        """Stop the session and wait for the end of the JVM, if this object started them.

        No session starts after that.
        """
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        lives = self._spark is not None and self._lives()
        spark, self._spark = self._spark, None
        # A borrowed session stays open.
        if spark is None or self._found:
            return
        if self._settings.connects:
            try:
                if lives and self._answers():
                    spark.stop()
                else:
                    spark.client.close()  # the server does not answer
            finally:
                disconnected()
            return
        try:
            if lives:
                spark.stop()
            else:
                spark.sparkContext._jsc = None  # the JVM does not answer
                spark.sparkContext.stop()
        finally:
            _end_jvm()


def _end_jvm() -> None:
    from pyspark import SparkContext  # noqa: PLC0415 - as above

    gateway: Any = SparkContext._gateway
    if gateway is None or SparkContext._active_spark_context is not None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    process = gateway.proc
    gateway.shutdown()
    # The JVM exits when its stdin closes.
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_JVM_END_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()


def register(session: PysparkSession) -> None:
    """Register `session.read.format("ks_actors")` with a PySpark session.

    Jobs of the bridge have it already. Raises SparkUnavailable.
    """
    check_packages()
    from ks_actors.batch.source import KsActorsSource  # noqa: PLC0415 - loaded on use

    session.dataSource.register(KsActorsSource)


def check_packages(*, connects: bool = False) -> None:
    """Raise SparkUnavailable, with all missing packages, unless the extra is installed."""
    missing = []
    for name in _NEEDED_TO_CONNECT if connects else _NEEDED:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            missing.append(name)
    if missing:
        are = "is" if len(missing) == 1 else "are"
        what, extra = ("Spark Connect", "spark-connect") if connects else ("Spark", "spark")
        raise SparkUnavailable(
            f"{what} needs {', '.join(missing)}, which {are} not installed: pip install "
            f"'ks-actors[{extra}]'"
        )


def _check_java() -> None:
    # Spark's scripts ignore an empty value, too.
    home = os.environ.get("JAVA_HOME") or None
    java = shutil.which("java") if home is None else shutil.which(str(Path(home) / "bin" / "java"))
    if java is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME, {home}"
        raise SparkUnavailable(
            f"Spark needs Java 17 or later, and found none {where}: install it, or use "
            "master='sc://…'"
        )


def _hint(error: Exception, settings: SparkSettings) -> str:
    """Return a hint for a JVM that exits at once, as its reason is only in its output."""
    if "JAVA_GATEWAY_EXITED" not in str(error):
        return ""
    if settings.master.startswith("yarn") and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & set(
        os.environ
    ):
        return " YARN needs HADOOP_CONF_DIR or YARN_CONF_DIR, and neither is set"
    return " Its stderr has the reason"


@contextmanager
def _python(interpreter: str) -> Iterator[None]:
    """Set the interpreter of pyspark's tasks; pyspark reads only the environment, and only once."""
    chosen = {"PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": sys.executable}
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def new_tag(name: str) -> str:
    """Return a tag for the Spark jobs of one bridge job. Spark does not allow commas."""
    return f"ks-{name.replace(',', '-')}-{uuid.uuid4().hex[:8]}"
