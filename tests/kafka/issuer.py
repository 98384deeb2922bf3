"""An OpenID provider on this machine: it issues tokens to clients, and publishes the key by which brokers check them."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENT, SECRET = "orders", "orders' own secret"


def _part(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _part(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Issuer:
    """Issues tokens that live for `life_s`; its next answers have the statuses of `broken`."""

    def __init__(self, life_s: float = 3600.0) -> None:
        self.life_s = life_s
        self.broken: list[int] = []
        self.forms: list[dict[str, list[str]]] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, issuer.keys())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                issuer.forms.append(form)
                login = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                if issuer.broken:
                    self._answer(issuer.broken.pop(0), {"error": "broken"})
                elif login != f"{CLIENT}:{SECRET}" or form.get("grant_type") != ["client_credentials"]:
                    self._answer(401, {"error": "invalid_client"})
                else:
                    self._answer(200, {"access_token": issuer.token(), "token_type": "Bearer", "expires_in": issuer.life_s})

            def _answer(self, status: int, content: Mapping[str, Any]) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def keys(self) -> dict[str, Any]:
        """Return the public key as a JSON Web Key Set."""
        numbers = self._key.public_key().public_numbers()
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": _number(numbers.n), "e": _number(numbers.e)}]}

    def token(self, life_s: float | None = None) -> str:
        """Return a signed token."""
        now = time.time()
        claims = {
            "sub": CLIENT,
            "iss": "issuer",
            "aud": "kafka",
            "scope": "kafka",
            "iat": now,
            "exp": now + (self.life_s if life_s is None else life_s),
        }
        parts = [_part(json.dumps(each).encode()) for each in ({"alg": "RS256", "kid": "1", "typ": "JWT"}, claims)]
        signature = self._key.sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
        return ".".join([*parts, _part(signature)])

    def broker_settings(self) -> dict[str, str]:
        """Return the settings of a broker that takes tokens of this issuer, beside other logins."""
        package = "org.apache.kafka.common.security.oauthbearer"
        settings = {}
        for listener in ("sasl_plaintext", "sasl_ssl"):
            settings[f"listener.name.{listener}.oauthbearer.sasl.jaas.config"] = f"{package}.OAuthBearerLoginModule required;"
            settings[f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class"] = f"{package}.OAuthBearerValidatorCallbackHandler"
        return settings | {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": "issuer",
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.url}/keys",
            "super.users": f"User:ANONYMOUS;User:alice;User:{CLIENT}",
        }
