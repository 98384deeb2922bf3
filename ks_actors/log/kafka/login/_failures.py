"""Steps of a login, and the reason and the remedy when a step fails."""

from __future__ import annotations

import os
import re
import socket
import ssl
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ks_actors.log.kafka.login._names import CA_FILE, CERT_FILE, CHECK_HOSTNAME, TLS

if TYPE_CHECKING:
    from collections.abc import Mapping

# Codes of OpenSSL for certificates: not valid yet, expired; then another host name or address.
_EXPIRED: Final = frozenset({9, 10})
_OTHER_NAME: Final = frozenset({62, 64})
# The beginning of an alert: a TLS listener answers with it to bytes that are not TLS.
_ALERT: Final = b"\x15\x03"


# The prefixes that aiokafka adds to errors whose own text is better.
_PREFIX: Final = re.compile(
    r"^(\[Error -?\d+\] )?"
    r"((KafkaConnection|UnsupportedSaslMechanism)Error|SaslAuthenticationFailed): "
)


class Step(StrEnum):
    """A step on the way to a broker, in order; the value is the step's name in errors."""

    TOKEN = "token request"  # noqa: S105 - a name
    RESOLVE = "name resolution"
    CONNECT = "TCP connect"
    TLS = "TLS handshake"
    VERSIONS = "version handshake"
    MECHANISM = "SASL handshake"
    LOGIN = "authentication"
    IDENTITY = "first request"


_REMEDIES: Final[Mapping[Step, str]] = {
    Step.RESOLVE: "check bootstrap_servers, and the DNS of this machine",
    Step.CONNECT: "check that a broker listens there, and that no firewall is between",
    Step.VERSIONS: "its listener may have TLS, or not be Kafka's: check security_protocol",
    Step.MECHANISM: "check sasl_mechanism and security_protocol",
    Step.LOGIN: "check the credentials",
    Step.IDENTITY: "its listener may want a login: check security_protocol and sasl_mechanism",
}
# The remedies if the cluster itself has reported the broker's address.
_OF_KNOWN: Final[Mapping[Step, str]] = {
    Step.RESOLVE: "advertised.listeners of the broker has that name: this machine must know it",
    Step.CONNECT: "advertised.listeners of the broker has that address: check that it runs, and "
    "that this machine can reach it",
}


def why_failed(step: Step, error: BaseException | str, *, tls: bool, known: bool) -> str:
    """Return the text about a failed step: the step, the reason and the remedy.

    `known` means that the cluster itself has reported the address, from `advertised.listeners`.
    """
    found = f"{step} failed: {error if isinstance(error, str) else told(error)}"
    remedy = _remedy(step, error, tls=tls, known=known)
    return f"{found}; {remedy}" if remedy else found


def told(error: BaseException) -> str:
    """Return the text of an error without the numbers and names that libraries put in front."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message.removesuffix('.')}"
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        # The texts of the event loop name its own calls, so use the text of the system.
        return os.strerror(error.errno)
    if isinstance(error, ConnectionError) and not str(error):
        return "the broker closed the connection"
    return _PREFIX.sub("", str(error)) or type(error).__name__


def _remedy(step: Step, error: BaseException | str, *, tls: bool, known: bool) -> str | None:
    if step is Step.TLS:
        if isinstance(error, ssl.SSLCertVerificationError):
            return certificate_remedy(error.verify_code)
        return tls_remedy(error)
    if step is Step.VERSIONS and tls:
        # With TLS 1.3 a broker closes the connection to refuse a client's certificate.
        return _client_certificate_remedy()
    return (_OF_KNOWN.get(step) if known else None) or _REMEDIES.get(step)


def certificate_remedy(verify_code: int) -> str:
    """Return the remedy for a failure of a server's certificate, from OpenSSL's code."""
    if verify_code in _EXPIRED:
        return "it has to be renewed, or a clock is wrong"
    if verify_code in _OTHER_NAME:
        return f"use a name or an address that is in it, or turn {CHECK_HOSTNAME} off"
    return f"set {CA_FILE} to the certificates of its authority"


def tls_remedy(error: BaseException | str) -> str:
    """Return the remedy for a failed handshake."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return _client_certificate_remedy()
    return (
        f"its listener may be without TLS: use the port of its TLS listener, or check {TLS}; if it "
        f"has TLS, {_client_certificate_remedy()}"
    )


def _client_certificate_remedy() -> str:
    return f"the broker may want a client certificate: check {CERT_FILE} and its dates"


def is_alert(data: bytes) -> bool:
    """Return whether a listener has answered in TLS."""
    return data.startswith(_ALERT)
