"""Tokens for SASL/OAUTHBEARER, by OIDC client credentials: an id and a secret, for a token that soon expires.

The token endpoint is asked when a client logs in and the last token is nearly over; clients of the same
settings share it. kafka-python logs in again before the broker ends the session (KIP-368), and gets the next
token then. The secret is read each time it is sent, so that a rotated one is used at once. Neither it nor a
token is ever part of a message.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from kafka.net.sasl.oauth import AbstractTokenProvider

from streamforest.errors import ConfigError
from streamforest.io.kafka.auth.secrets import LoginError, SecretPlace
from streamforest.text import printable

log = logging.getLogger(__name__)

TIMEOUT = 8.0
"""Seconds that the token endpoint may take; a client's network thread waits for it."""
_USED_UP = (
    0.8  # share of a token's life after which the next one is fetched, as Kafka's own client does
)
_MAX_BYTES = 1 << 20  # of an answer
_UNKNOWN_LIFE = 300.0  # seconds, if neither the answer nor the token says
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class TokenError(LoginError):
    """No token. A lasting cause does not pass by waiting: somebody must change a setting."""

    def __init__(self, message: str, lasting: bool) -> None:
        super().__init__(message)
        self.lasting = lasting


@dataclass(frozen=True)
class ClientCredentials:
    """Who asks for a token, where, and what for."""

    endpoint: str
    client_id: str
    secret: SecretPlace
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    """What the broker wants to know besides the token, such as Confluent Cloud's `logicalCluster`."""
    ca_file: Path | None = None
    """Authorities that may have signed the endpoint's certificate; None: those of the machine."""


def parse_extensions(text: str) -> tuple[tuple[str, str], ...] | None:
    """`a=b,c=d` as pairs; None if it is something else.

    >>> parse_extensions("logicalCluster=lkc-1, identityPoolId=pool-2")
    (('logicalCluster', 'lkc-1'), ('identityPoolId', 'pool-2'))
    >>> parse_extensions("auth=x"), parse_extensions("a")
    (None, None)
    """
    pairs = []
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        # RFC 7628: letters only, and `auth` is the token itself
        if not (equals and name.isascii() and name.isalpha() and name != "auth" and value):
            return None
        if not (value.isascii() and value.isprintable()):
            return None
        pairs.append((name, value))
    return tuple(pairs)


def is_private(endpoint: str) -> bool:
    """Whether what is sent to an address stays private: by TLS, or since it does not leave the machine.

    >>> is_private("https://login.example.org/token"), is_private("http://127.0.0.1:8080/token")
    (True, True)
    >>> is_private("http://login.example.org/token")
    False
    """
    parts = urlsplit(endpoint)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK


class _NoRedirect(HTTPRedirectHandler):
    """An endpoint that sends the client elsewhere would get the secret sent there."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """The current token of some credentials, fetched when there is none or it is nearly over."""

    def __init__(self, credentials: ClientCredentials) -> None:
        super().__init__()
        self.credentials = credentials
        self.fetched = 0
        """How many tokens there were so far."""
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = self._expires_at = 0.0
        self._reported = ""

    def __repr__(self) -> str:
        return f"<tokens of {self.credentials.client_id!r}>"

    def token(self) -> str:
        """A token that is not nearly over; TokenError if there is none. One that is still valid does if the
        endpoint cannot be reached: it may be back before the token is over.
        """
        with self._lock:
            now = time.monotonic()
            if now >= self._renew_at:
                try:
                    self._fetch()
                except TokenError as error:
                    self._report(error)
                    if error.lasting or now >= self._expires_at:
                        raise
            return self._token

    def _report(self, error: TokenError) -> None:
        """Log why there is no new token, once until there is one: to kafka-python it is a connection that
        failed, which it keeps to itself.
        """
        if str(error) != self._reported:
            self._reported = str(error)
            log.warning("%s", error)

    def extensions(self) -> dict[str, str]:
        """What is sent along with the token."""
        return dict(self.credentials.extensions)

    def _fetch(self) -> None:
        begun = time.monotonic()
        answer = self._ask()
        token = answer.get("access_token")
        # in the message that carries it, \x01 ends a field
        if not isinstance(token, str) or not (token.isascii() and token.isprintable() and token):
            raise TokenError(f"{self._place()} answers without an access_token", lasting=True)
        life = _life(answer, token)
        if self._reported:
            log.info("%s gives tokens again", self._place())
        self._token, self.fetched, self._reported = token, self.fetched + 1, ""
        self._renew_at, self._expires_at = begun + _USED_UP * life, begun + life

    def _ask(self) -> Mapping[str, Any]:
        """One request by RFC 6749, 4.4: the grant in the body, the client in the header."""
        credentials = self.credentials
        try:
            secret = credentials.secret.read().reveal()
        except ConfigError as error:  # somebody may be replacing the file
            raise TokenError(str(error), lasting=False) from error
        # a str that hides itself gives itself away byte by byte only
        login = b":".join(
            quote(part.encode(), safe="").encode() for part in (credentials.client_id, secret)
        )
        fields = {"grant_type": "client_credentials"}
        if credentials.scope is not None:
            fields["scope"] = credentials.scope
        request = Request(
            credentials.endpoint,
            urlencode(fields).encode(),
            {
                "Authorization": "Basic " + b64encode(login).decode(),
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        try:
            with self._open(request) as answer:
                raw = answer.read(_MAX_BYTES + 1)
        except HTTPError as error:
            with error:
                raise self._refused(error.code, _fields(error.read(_MAX_BYTES))) from None
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        fields_ = _fields(raw)
        if not fields_:
            raise TokenError(f"{self._place()} does not answer with a JSON object", lasting=True)
        return fields_

    def _open(self, request: Request) -> HTTPResponse:
        context = ssl.create_default_context(cafile=self.credentials.ca_file)
        opener = build_opener(HTTPHandler(), HTTPSHandler(context=context), _NoRedirect())
        answer: HTTPResponse = opener.open(request, timeout=TIMEOUT)
        return answer

    def _place(self) -> str:
        address = self.credentials.endpoint.partition("?")[0]  # a key may be in the query
        return f"the token endpoint {printable(address, 200)}"

    def _refused(self, code: int, fields: Mapping[str, Any]) -> TokenError:
        """What an endpoint that refuses says, by the error codes of RFC 6749."""
        said = fields.get("error")
        word = f", {printable(said, 60)}" if isinstance(said, str) and said else ""
        if code >= 500 or code == 429:
            return TokenError(f"{self._place()} cannot answer now ({code}{word})", lasting=False)
        if 300 <= code < 400:
            return TokenError(
                f"{self._place()} sends its clients elsewhere ({code}): correct "
                "kafka.sasl_oauthbearer_token_endpoint_url",
                lasting=True,
            )
        client = printable(self.credentials.client_id, 100)
        remedy = {
            "invalid_scope": "correct kafka.sasl_oauthbearer_scope",
            "invalid_client": self._secret_remedy(),
            "unauthorized_client": "let it use the grant 'client_credentials'",
            "unsupported_grant_type": "let it give tokens for client credentials",
        }.get(str(said))
        if remedy is None:
            remedy = (
                self._secret_remedy()
                if code in (401, 403)
                else "correct kafka.sasl_oauthbearer_token_endpoint_url or kafka.sasl_oauthbearer_scope"
            )
        return TokenError(
            f"{self._place()} refuses client '{client}' ({code}{word}): {remedy}", lasting=True
        )

    def _secret_remedy(self) -> str:
        return f"correct kafka.sasl_oauthbearer_client_id or its secret ({self.credentials.secret.setting})"

    def _unreachable(self, error: Exception) -> TokenError:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            return TokenError(
                f"{self._place()}: its certificate is not trusted ({reason.verify_message}): name the "
                "file of the authority that signed it in kafka.sasl_oauthbearer_ssl_cafile",
                lasting=True,
            )
        if isinstance(reason, TimeoutError):
            why = f"no answer within {TIMEOUT:.0f} s"
        else:
            why = printable(getattr(reason, "strerror", None) or type(reason).__name__, 200).lower()
        return TokenError(
            f"{self._place()} cannot be reached: {why}; is it running, and is "
            "kafka.sasl_oauthbearer_token_endpoint_url right?",
            lasting=False,
        )


def _fields(raw: bytes) -> dict[str, Any]:
    """A JSON object; empty if it is something else."""
    try:
        fields = json.loads(raw) if len(raw) <= _MAX_BYTES else None
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _life(answer: Mapping[str, Any], token: str) -> float:
    """Seconds for which a token is valid: as the answer says, else as the token itself does."""
    life = answer.get("expires_in")
    if isinstance(life, int | float) and 0 < life < 1e9:
        return float(life)
    try:
        payload = token.split(".")[1]
        claims = _fields(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        left = float(claims["exp"]) - time.time()
    except (IndexError, ValueError, KeyError, TypeError):
        return _UNKNOWN_LIFE
    return max(1.0, left)


_PROVIDERS: dict[ClientCredentials, TokenProvider] = {}
_PROVIDERS_LOCK = threading.Lock()


def tokens_of(credentials: ClientCredentials) -> TokenProvider:
    """The tokens of some credentials, shared by all clients of this process."""
    with _PROVIDERS_LOCK:
        return _PROVIDERS.setdefault(credentials, TokenProvider(credentials))
