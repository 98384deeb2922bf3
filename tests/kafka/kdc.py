"""A Kerberos of this machine: MIT's key distribution center, with a realm of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.kafka.broker import free_ports

REALM = "TEST.EXAMPLE"
SERVICE, CLIENT = "kafka/localhost", "orders"
# Debian has them where a user's path does not lead.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing_kerberos() -> str | None:
    """List the things that a login by Kerberos needs and this machine does not have."""
    missing = [tool for tool in ("krb5kdc", "kdb5_util", "kadmin.local") if shutil.which(tool, path=_PATH) is None]
    try:
        import gssapi  # noqa: F401, PLC0415 - optional
    except (ImportError, OSError):
        missing.append("gssapi")
    return f"no {' and no '.join(missing)} on this machine" if missing else None


class Kdc:
    """A running KDC; `variables` are the environment of a process that has the client's keytab, or, without `ticket`, none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self._port,) = free_ports(1)
        self.config = directory / "krb5.conf"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.directory.mkdir()
        self.config.write_text(f"""
[libdefaults]
  default_realm = {REALM}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  rdns = false
  dns_canonicalize_hostname = false
[realms]
  {REALM} = {{
    kdc = tcp/127.0.0.1:{self._port}
    kdc = 127.0.0.1:{self._port}
  }}
""")
        (self.directory / "kdc.conf").write_text(f"""
[kdcdefaults]
  kdc_listen = 127.0.0.1:{self._port}
  kdc_tcp_listen = 127.0.0.1:{self._port}
[realms]
  {REALM} = {{
    database_name = {self.directory}/principal
    key_stash_file = {self.directory}/stash
    max_life = 1h
  }}
[logging]
  kdc = FILE:{self.directory}/kdc.log
""")
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        for name, file in ((SERVICE, "kafka.keytab"), (CLIENT, "orders.keytab")):
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {name}@{REALM}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {self.directory}/{file} {name}@{REALM}")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Run the KDC, and wait until it can be asked."""
        self._process = subprocess.Popen([self._tool("krb5kdc"), "-n", "-r", REALM], env=self._environment())  # noqa: S603 - our own
        ends = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                assert time.monotonic() < ends, (self.directory / "kdc.log").read_text()
            else:
                return

    def stop(self) -> None:
        """End the KDC; a second call does nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def variables(self, *, ticket: bool = True) -> dict[str, str]:
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5CCNAME": f"FILE:{self.directory}/cache-{ticket}",
            "KRB5_CLIENT_KTNAME": str(self.directory / ("orders.keytab" if ticket else "none.keytab")),
        }

    def broker_settings(self) -> dict[str, str]:
        """Return the settings of a broker that takes tickets for its own principal, at listeners with SASL."""
        keytab = self.directory / "kafka.keytab"
        module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "super.users": f"User:ANONYMOUS;User:alice;User:{CLIENT}",
            **{
                f"listener.name.{listener}.gssapi.sasl.jaas.config": f'{module} keyTab="{keytab}" principal="{SERVICE}@{REALM}";'
                for listener in ("sasl_plaintext", "sasl_ssl")
            },
        }

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": _PATH, "KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf")}

    def _tool(self, name: str) -> str:
        found = shutil.which(name, path=_PATH)
        assert found is not None
        return found

    def _run(self, name: str, *words: str) -> None:
        done = subprocess.run([self._tool(name), *words], env=self._environment(), capture_output=True, check=False)  # noqa: S603 - our own
        assert done.returncode == 0, done.stderr.decode()
