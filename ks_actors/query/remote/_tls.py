"""TLS of queries across instances."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from ks_actors._errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def server_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return the context of a server with this certificate; None without one.

    Raises ConfigError for files that cannot be read. Blocks.
    """
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password, or OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise ConfigError(
            "query_ssl_certificate_location, query_ssl_key_location: the certificate and its "
            f"unencrypted key cannot be used: {error}"
        ) from None
    return context


def client_context(authorities: Path | None) -> ssl.SSLContext:
    """Return the context of a client that checks certificates and host names.

    Raises ConfigError for a file that cannot be read. Blocks.
    """
    try:
        context = ssl.create_default_context(cafile=authorities)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"query_ssl_ca_location: the certificates cannot be used: {error}"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
