"""Names of options in errors: users set options, or settings of an app that have Kafka's names."""

from __future__ import annotations

from typing import Final

TLS: Final = "tls (security_protocol)"
CA_FILE: Final = "tls_ca_file (ssl_truststore_location)"
CA_PEM: Final = "tls_ca_pem (ssl_truststore_certificates)"
CERT_FILE: Final = "tls_cert_file (ssl_keystore_location)"
KEY_FILE: Final = "tls_key_file (ssl_key_location)"
KEY_PASSWORD: Final = "tls_key_password (ssl_key_password)"  # noqa: S105 - a name
CERT_PEM: Final = "tls_cert_pem (ssl_keystore_certificate_chain)"
CERT_PASSWORD: Final = "tls_cert_password (ssl_keystore_password)"  # noqa: S105 - a name
KEY_PEM: Final = "tls_key_pem (ssl_keystore_key)"
CHECK_HOSTNAME: Final = "tls_check_hostname (ssl_endpoint_identification_algorithm)"
