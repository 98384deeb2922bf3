"""A real Kafka for tests: one node in a directory of its own, from Maven's jars."""

from __future__ import annotations

import fcntl
import functools
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NEWEST = "4.4.0"
# An older one may be named, to run these tests against its brokers.
VERSION = os.environ.get("KAFKA_VERSION", NEWEST)
_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
_PATIENCE_S = 60
# A broker that stands still for less than this does not miss a heartbeat's deadline, and sends one within this time when it goes on.
_HEARTBEAT_S = 1.0
_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")
QUICK = ("-XX:TieredStopAtLevel=1", "-Xshare:auto", *_LOGGING)
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
UNTESTED = "WAS NOT TESTED"
USER, PASSWORD = "alice", "alice's own secret"
STRANGER, STRANGERS_PASSWORD = "mallory", "mallory-secret"


def missing_tools() -> str | None:
    """List the things that Kafka's tests need and this machine does not have."""
    needed = ["java"] if _jars_are_there() else ["java", "mvn"]
    missing = [tool for tool in needed if shutil.which(tool) is None]
    return f"no {' and no '.join(missing)} on this machine" if missing else None


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ks-actors-tests" / f"kafka-{VERSION}"


def _jars_are_there() -> bool:
    return (_cache() / "lib").is_dir()


def jars() -> Path:
    """Return the directory of Kafka's jars, which Maven fetches the first time."""
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _jars_are_there():
            fresh = cache / f"lib-{os.getpid()}"
            (cache / "pom.xml").write_text(_POM)
            command = ["mvn", "-q", "-B", "-f", str(cache / "pom.xml"), "dependency:copy-dependencies", "-DincludeScope=runtime"]
            done = subprocess.run([*command, f"-DoutputDirectory={fresh}"], capture_output=True, text=True, check=False)  # noqa: S603 - our own
            if done.returncode != 0:
                raise RuntimeError(f"Maven could not fetch Kafka {VERSION}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            fresh.rename(cache / "lib")
    return cache / "lib"


@functools.cache
def made_classes() -> Path:
    """Return the file with a JVM's archive of the classes of a broker that has been used, which the first one leaves: others start and work sooner.

    A JVM that is another one, or whose jars are others, sees that, and goes without; so does one that finds none, as dumping took too long.
    """
    java = str(Path(shutil.which("java") or "java").resolve())
    path = _cache() / f"used-classes-{zlib.crc32(java.encode()):08x}.jsa"
    with (_cache() / "classes-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(prefix="kafka-", dir=_cache()) as directory:
                fresh = Path(directory) / "classes.jsa"
                broker = Broker(Path(directory) / "broker", classes=fresh)
                broker.start()
                try:
                    _run([sys.executable, "-m", "tests.kafka.warm", broker.bootstrap], cwd=Path(__file__).parents[2])
                except RuntimeError as error:
                    sys.stderr.write(f"the archive of a broker's classes has fewer of them: {error}\n")
                finally:
                    broker.stop()
                if fresh.exists():
                    fresh.rename(path)
    return path


@functools.cache
def _ports() -> tuple[int, list[int]]:
    """Return a file that all processes of tests share, and all ports that the system does not give to connections, in random order."""
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except OSError:
        low, high = 32_768, 65_535
    every = range(20_000, 65_536)
    # Tests set the seed of the module's own generator.
    drawn = random.SystemRandom().sample(every, len(every))
    return os.open(_cache().parent / "ports", os.O_RDWR | os.O_CREAT), [port for port in drawn if not low <= port <= high] or drawn


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens at. As long as this process lives no other one draws them: the byte of that number is locked in a file."""
    _cache().mkdir(parents=True, exist_ok=True)
    file, ports = _ports()
    found: list[int] = []
    while len(found) < count:
        port = ports.pop()
        with suppress(OSError), socket.socket() as probe:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


class Broker:
    """One node of Kafka, broker and controller.

    `secure` gives it listeners for TLS and SASL too, and lets strangers do nothing: `USER` and clients without a name may do all, `STRANGER` may only
    log in. With `classes` it leaves there, at its end, what the JVM has made of its classes. The JVM of a `quick` one compiles less, which takes half
    of the CPU time of a short life; what is measured, or runs for long, needs the default. Clients without TLS and SASL find it at `port`, if given.
    """

    def __init__(
        self, directory: Path, *, secure: bool = False, settings: Mapping[str, str] | None = None, classes: Path | None = None, node: int = 1,
        quick: bool = True, port: int | None = None,
    ) -> None:  # fmt: skip
        # Its process runs in the directory.
        self.directory = directory.absolute()
        self.number = node
        self.secure = secure
        self.settings = dict(settings or {})
        self._classes = classes
        self._flags = QUICK if quick else _LOGGING
        self._process: subprocess.Popen[bytes] | None = None
        names = ["PLAINTEXT", "CONTROLLER", *(["SSL", "SASL_PLAINTEXT", "SASL_SSL"] if secure else [])]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        if port is not None:
            self._ports["PLAINTEXT"] = port
        self._paused_at: float | None = None
        self._was_frozen = False

    @property
    def bootstrap(self) -> str:
        return self.address("PLAINTEXT")

    def address(self, protocol: str) -> str:
        return f"127.0.0.1:{self._ports[protocol]}"

    @property
    def certificate(self) -> Path:
        """The certificates that clients have to trust."""
        return self.directory / "ca.pem"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it was started, and not ended since."""
        return self._process is not None

    def start(self) -> None:
        """Start, and wait until it answers."""
        assert self._process is None, "the broker is running"
        self.directory.mkdir(parents=True, exist_ok=True)
        lib = jars()
        config = self.directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        if not (self.directory / "data" / "meta.properties").exists():
            self._begin(config)
        with (self.directory / "broker.log").open("ab") as log:
            classes = f"SharedArchiveFile={made_classes()}" if self._classes is None else f"ArchiveClassesAtExit={self._classes}"
            command = ["java", "-Xms256m", "-Xmx512m", *self._flags, f"-XX:{classes}", "-cp", f"{lib}/*", "kafka.Kafka", str(config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.directory, start_new_session=True)  # noqa: S603 - our own
        self._was_frozen = False
        self._wait()

    def _properties(self) -> dict[str, str]:
        protocols = [name for name in self._ports if name != "CONTROLLER"]
        found = {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "controller.quorum.voters": f"{self.number}@{self.address('CONTROLLER')}",
            "listeners": ",".join(f"{name}://{self.address(name)}" for name in self._ports),
            "advertised.listeners": ",".join(f"{name}://{self.address(name)}" for name in protocols),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "500",
            # Timeouts of transactions are looked for each ten seconds else, and a killed broker is believed to be there for nine.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "250",
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            # Tests write records of 1970: they would be deleted as soon as somebody looks at their age.
            "log.retention.ms": "-1",
            "log.cleaner.dedupe.buffer.size": "8388608",
            # A broker that nobody asks writes two records a second of its own else.
            "metadata.max.idle.interval.ms": "0",
            "num.network.threads": "2",
            "num.io.threads": "4",
        }
        if self.secure:
            found |= {
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT," + ",".join(f"{name}:{name}" for name in protocols),
                "ssl.keystore.location": str(self.directory / "keys.p12"),
                "ssl.keystore.password": "changeit",
                "ssl.keystore.type": "PKCS12",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:ANONYMOUS;User:{USER}",
            }
            plain = (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}" user_{STRANGER}="{STRANGERS_PASSWORD}";'
            )
            for name in ("sasl_plaintext", "sasl_ssl"):
                found[f"listener.name.{name}.plain.sasl.jaas.config"] = plain
                for mechanism in ("256", "512"):
                    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                    found[f"listener.name.{name}.scram-sha-{mechanism}.sasl.jaas.config"] = login
        return found | self.settings

    def _begin(self, config: Path) -> None:
        """Format the directory: copy one that was formatted for a node like this, with its certificate."""
        users: list[str] = []
        if self.secure:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                for user, password in ((USER, PASSWORD), (STRANGER, STRANGERS_PASSWORD)):
                    users += ["--add-scram", f'{mechanism}=[name="{user}",password="{password}"]']
        properties = self._properties()
        like = repr([_CLUSTER, properties["node.id"], properties["process.roles"], users])
        formatted = _cache() / f"formatted-{zlib.crc32(like.encode()):08x}"
        with (_cache() / "formatted-lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not formatted.exists():
                if self.secure:
                    self._make_certificate()
                tool = ["java", *QUICK, "-cp", f"{jars()}/*", "kafka.tools.StorageTool"]
                _run([*tool, "format", "-t", _CLUSTER, "-c", str(config), *users])
                fresh = _cache() / f"formatted-{os.getpid()}"
                shutil.copytree(self.directory, fresh, dirs_exist_ok=True, ignore=shutil.ignore_patterns(config.name))
                fresh.rename(formatted)
        shutil.copytree(formatted, self.directory, dirs_exist_ok=True)

    def _make_certificate(self) -> None:
        keys = str(self.directory / "keys.p12")
        password = ["-storetype", "PKCS12", "-storepass", "changeit", "-keystore", keys, "-alias", "broker"]
        name = ["-dname", "CN=localhost", "-ext", "SAN=IP:127.0.0.1,DNS:localhost"]
        _run(["keytool", "-genkeypair", "-keyalg", "EC", "-validity", "3650", *name, "-ext", "BC=ca:true", *password])
        self.certificate.write_bytes(_run(["keytool", "-exportcert", "-rfc", *password]))

    def _wait(self, least_s: float = 0.0) -> None:
        process = self._process
        assert process is not None
        begun = time.monotonic()
        while time.monotonic() - begun < least_s or not self.answers():
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                self._process = None
                raise RuntimeError(f"the broker has ended:\n{self.log()[-4000:]}")
            if time.monotonic() - begun > _PATIENCE_S:
                self.kill()
                raise RuntimeError(f"the broker did not answer within {_PATIENCE_S} s:\n{self.log()[-4000:]}")

    def answers(self) -> bool:
        """Ask for metadata, and see whether there is a broker in it."""
        return self.knows() > 0

    def knows(self) -> int:
        """Return the number of brokers in its metadata, 0 when it does not answer."""
        question = struct.pack(">hhih", 3, 1, 1, 4) + b"test" + struct.pack(">i", 0)
        try:
            with socket.create_connection(("127.0.0.1", self._ports["PLAINTEXT"]), timeout=2) as connection:
                connection.sendall(struct.pack(">i", len(question)) + question)
                answer = connection.recv(12, socket.MSG_WAITALL)
        except OSError:
            return 0
        return int(struct.unpack(">iii", answer)[2]) if len(answer) == 12 else 0

    def log(self) -> str:
        """Return the broker's output."""
        return (self.directory / "broker.log").read_text(errors="replace")

    def stop(self) -> None:
        """Stop as an operator would; does nothing when it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        self.resume()
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None

    def restart(self, *, kill: bool = False) -> None:
        """End it, and start it again at the same address."""
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        self.start()

    def pause(self) -> None:
        """Stand still, with all connections open."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        self._paused_at = time.monotonic()

    def resume(self) -> None:
        """Go on; does nothing when it was not paused."""
        if self._paused_at is not None:
            os.kill(self.pid, signal.SIGCONT)
            self._was_frozen = self._was_frozen or time.monotonic() - self._paused_at > _HEARTBEAT_S
            self._paused_at = None

    def rest(self) -> None:
        """Take no CPU time until it is mended."""
        if self.runs and self._paused_at is None:
            self.pause()

    def mend(self) -> None:
        """Have it run and answer, whatever was done to it."""
        if not self.runs:
            self.start()
            return
        self.resume()
        # One that stood still for long may, at first, be taken for dead by its own controller: until its next heartbeat.
        self._wait(_HEARTBEAT_S if self._was_frozen else 0.0)
        self._was_frozen = False


def _run(command: list[str], cwd: Path | None = None) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False, cwd=cwd)  # noqa: S603 - our own
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout


def require_kafka() -> None:
    """Skip the test when there can be no Kafka; on CI that is a failure."""
    _require(missing_tools(), "KAFKA IS")


def require_openssl() -> None:
    """Skip the test when no certificates can be made; on CI that is a failure."""
    _require(None if shutil.which("openssl") else "no openssl on this machine", "CERTIFICATES ARE")


def require_kerberos(missing: str | None) -> None:
    """Skip the test when there can be no Kerberos, on CI as well: the summary of the run tells."""
    if missing is not None:
        skip_untested("KERBEROS", f"{missing}: apt-get install krb5-kdc krb5-admin-server libkrb5-dev, then pip install gssapi")


def skip_untested(what: str, reason: str) -> NoReturn:
    """Skip the test, on CI as well: the summary of the run tells."""
    pytest.skip(f"{what} {UNTESTED}: {reason}")


def _require(missing: str | None, tested: str) -> None:
    if missing is None:
        return
    if os.environ.get("CI") in ("1", "true"):
        pytest.fail(f"tests with a real Kafka cannot run: {missing}")
    pytest.skip(f"{tested} NOT TESTED: {missing}")


_lent: dict[str, Broker] = {}


def _borrow(config: pytest.Config, name: str, *, secure: bool = False) -> Broker:
    """Return the broker of that name, running. A run has one of each; they are killed at its end."""
    require_kafka()
    if name not in _lent:
        broker = _lent[name] = Broker(Path(tempfile.mkdtemp(prefix="kafka-")), secure=secure)

        def end() -> None:
            del _lent[name]
            broker.kill()
            shutil.rmtree(broker.directory, ignore_errors=True)

        config.add_cleanup(end)
    _lent[name].mend()
    return _lent[name]


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Broker:
    """A Kafka that all tests share: they use names of their own, and leave it running."""
    return _borrow(request.config, "shared")


@pytest.fixture
def own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Kafka that one test has at a time, running, to be killed, frozen and restarted as it likes; other tests have other names in it."""
    broker = _borrow(request.config, "own")
    yield broker
    broker.rest()


@pytest.fixture
def fresh_broker(tmp_path: Path) -> Iterator[Broker]:
    """A Kafka of one test alone, running, which may lose its disk, and has no topics yet."""
    require_kafka()
    broker = Broker(tmp_path / "broker")
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def secure_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Kafka with TLS, SASL and rights that one test has at a time, running: rules are for names of the test's own."""
    broker = _borrow(request.config, "secure", secure=True)
    yield broker
    broker.rest()
