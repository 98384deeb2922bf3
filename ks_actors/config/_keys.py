"""Settings of TLS: keys and certificates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# As Kafka reads PEM: any blank may end a line, because values in some files cannot have line ends.
_BLOCK: Final = re.compile(
    r"-----BEGIN (?!EC PARAMETERS)([A-Z0-9 ]+)-----\s+(.+?)\s+-----END \1-----", re.DOTALL
)
_WIDTH: Final = 64

KEYS: Final = (
    "ssl_truststore_location",
    "ssl_truststore_type",
    "ssl_truststore_password",
    "ssl_truststore_certificates",
    "ssl_keystore_location",
    "ssl_keystore_type",
    "ssl_keystore_password",
    "ssl_keystore_certificate_chain",
    "ssl_keystore_key",
    "ssl_key_location",
    "ssl_key_password",
)
"""Settings of keys and certificates."""

# Settings, each with the other settings of which it needs one.
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl_truststore_type": ("ssl_truststore_location", "ssl_truststore_certificates"),
    "ssl_truststore_password": ("ssl_truststore_location",),
    "ssl_keystore_type": ("ssl_keystore_location", "ssl_keystore_certificate_chain"),
    "ssl_keystore_password": ("ssl_keystore_location",),
    "ssl_keystore_certificate_chain": ("ssl_keystore_key",),
    "ssl_keystore_key": ("ssl_keystore_certificate_chain",),
    "ssl_key_location": ("ssl_keystore_location",),
    "ssl_key_password": ("ssl_keystore_location", "ssl_keystore_key"),
}
_STORES: Final = (
    ("truststore", "ssl_truststore_certificates"),
    ("keystore", "ssl_keystore_certificate_chain"),
)


def key_contradictions(values: Mapping[str, Any], given: Collection[str]) -> list[str]:
    """Return the contradictions among the settings of keys and certificates."""
    wrong = [
        f"{name}: needs {' or '.join(needed)}"
        for name, needed in _NEEDS.items()
        if name in given and not any(each in given for each in needed)
    ]
    for store, text in _STORES:
        location, kind = f"ssl_{store}_location", f"ssl_{store}_type"
        if location in given and text in given:
            wrong.append(f"{location} and {text} are both set: set one of them")
        if text in given and values[kind] == "PKCS12":
            wrong.append(f"{text}: is PEM, but {kind} is PKCS12")
    return wrong


def store_kind(value: Any) -> str:
    """Accept `PEM` or `PKCS12`, in any case."""
    kind = value.upper() if isinstance(value, str) else ""
    if kind == "JKS":
        raise ValueError(
            "is Java's own type: convert the store with keytool -importkeystore -srckeystore "
            "store.jks -destkeystore store.p12 -deststoretype PKCS12, and set PKCS12; what keytool "
            "of Java 9 or newer made is PKCS12 already, whatever its name"
        )
    if kind not in {"PEM", "PKCS12"}:
        raise ValueError("is neither PEM nor PKCS12")
    return kind


def certificates(value: Any) -> str:
    """Accept certificates as PEM; return them with PEM's line ends."""
    return _pem(value, "CERTIFICATE")


def key(value: Any) -> str:
    """Accept a private key as PEM, which may be encrypted; return it with PEM's line ends."""
    return _pem(value, "PRIVATE KEY")


def _pem(value: Any, kind: str) -> str:
    if not isinstance(value, str):
        raise ValueError("is not text")  # noqa: TRY004 - one error type for bad values
    # Files of environment variables have line ends as two characters.
    found = _BLOCK.findall(value.replace("\\n", "\n"))
    if not found or not all(name.endswith(kind) for name, _ in found):
        raise ValueError(
            f"is not PEM: expected -----BEGIN {kind}-----, and no other kind; the name of a file "
            "belongs into ssl_keystore_location or ssl_truststore_location"
        )
    return "".join(
        f"-----BEGIN {name}-----\n{_wrapped(text)}\n-----END {name}-----\n" for name, text in found
    )


def _wrapped(text: str) -> str:
    if ":" in text:
        # Headers of an old encrypted key.
        return text
    text = "".join(text.split())
    return "\n".join(text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH))
