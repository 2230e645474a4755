"""An OIDC issuer on loopback for tests: gives tokens for client credentials, and shows its public key.

    with Issuer({"my-client": "its secret"}, lifetime=60) as issuer:
        issuer.token_url, issuer.keys_url

It speaks just enough of RFC 6749 and RFC 7517 for a Kafka broker and its clients. Needs cryptography (which
trustme brings along); nothing here is for production.
"""

from __future__ import annotations

import json
import math
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

_KEY = "test-key"


class Issuer:
    """Signs tokens with a key of its own; how long they live and to whom they are given can be changed."""

    audience = "kafka"

    def __init__(self, clients: Mapping[str, str], lifetime: float = 60.0) -> None:
        """`clients` are ids and secrets; `lifetime` is that of a token, in seconds."""
        from cryptography.hazmat.primitives.asymmetric import rsa

        self.clients = dict(clients)
        self.lifetime = lifetime
        self.given: list[str] = []
        """The tokens so far."""
        self.scopes: list[str | None] = []
        """The scopes that were asked for."""
        self.down = False
        """Whether it answers with 503."""
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Its own name, which its tokens carry."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def token_url(self) -> str:
        """Where tokens are given."""
        return f"{self.url}/token"

    @property
    def keys_url(self) -> str:
        """Where its public key is."""
        return f"{self.url}/keys"

    def keys(self) -> dict[str, Any]:
        """Its public key as a key set."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY}
        return {"keys": [{**key, "n": _number(numbers.n), "e": _number(numbers.e)}]}

    def token(self, client: str, scope: str | None) -> str:
        """A signed token for a client, which is its subject."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        now = int(time.time())
        head = {"alg": "RS256", "kid": _KEY, "typ": "JWT"}
        claims: dict[str, Any] = {"iss": self.url, "aud": self.audience, "sub": client, "iat": now}
        claims |= {"exp": now + math.ceil(self.lifetime), "jti": str(len(self.given))}
        if scope is not None:
            claims["scope"] = scope
        body = f"{_encoded(json.dumps(head).encode())}.{_encoded(json.dumps(claims).encode())}"
        signature = self._key.sign(body.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{body}.{_encoded(signature)}"

    def answer(self, login: str, fields: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """The status and the answer to a request for a token."""
        if self.down:
            return 503, {}
        try:
            raw = b64decode(login.removeprefix("Basic ")).decode()
        except ValueError:
            raw = ""
        client, _, secret = (unquote(part) for part in raw.partition(":"))
        if not secret or self.clients.get(client) != secret:
            return 401, {"error": "invalid_client"}
        if fields.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        scope = fields.get("scope")
        if scope == "forbidden":
            return 400, {"error": "invalid_scope"}
        token = self.token(client, scope)
        self.given.append(token)
        self.scopes.append(scope)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime}

    def __enter__(self) -> Issuer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*((200, issuer.keys()) if self.path == "/keys" else (404, {})))

        def do_POST(self) -> None:
            size = min(int(self.headers.get("Content-Length") or 0), 65_536)
            sent = parse_qs(self.rfile.read(size).decode())
            fields = {name: values[0] for name, values in sent.items()}
            if self.path != "/token":
                self._send(404, {})
                return
            self._send(*issuer.answer(self.headers.get("Authorization") or "", fields))

        def _send(self, status: int, answer: Mapping[str, Any]) -> None:
            raw = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing on stderr."""

    return Handler


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _number(number: int) -> str:
    return _encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))
