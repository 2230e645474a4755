"""Security settings of a local broker: TLS and SASL listeners, users, ACLs.

For tests of pipelines that must log in. The plaintext listener on loopback remains. Its clients count as the
operator: they may do everything, and grant ACLs to others.
"""

from __future__ import annotations

import hashlib
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamforest.errors import BrokerError

LISTENERS = {
    "tls": "SSL",
    "mutual_tls": "SSL",
    "sasl_tls": "SASL_SSL",
    "sasl_plaintext": "SASL_PLAINTEXT",
}
"""Listener -> Kafka's name of its protocol."""
_MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS = 4096
_PACKAGE = "org.apache.kafka.common.security"
_SIMPLE = re.compile(r"[A-Za-z0-9._~-]+")


@dataclass(frozen=True)
class TrustedTokens:
    """The issuer of the tokens that a broker accepts, and for whom they must be."""

    keys_url: str
    """Where its public keys are (JWKS)."""
    issuer: str
    audience: str

    def properties(self, prefix: str) -> dict[str, str]:
        """The lines for one listener."""
        package = f"{_PACKAGE}.oauthbearer"
        login = f"{prefix}.oauthbearer.sasl"
        return {
            f"{login}.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            f"{login}.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
            f"{login}.oauthbearer.jwks.endpoint.url": self.keys_url,
            f"{login}.oauthbearer.expected.issuer": self.issuer,
            f"{login}.oauthbearer.expected.audience": self.audience,
        }


@dataclass(frozen=True)
class BrokerSecurity:
    """Certificates and users of a secured node.

    Parameters
    ----------
    certificate
        PEM file with the node's private key (PKCS#8), its certificate and the chain.
    authority
        PEM file with the authority that signs clients' certificates.
    users
        Name -> password, known to PLAIN and to both kinds of SCRAM.
    host
        The advertised host name: one of the names in the certificate.
    tokens
        Whose tokens are taken by OAUTHBEARER, if any are.
    sessions
        After how many milliseconds clients must log in again (`connections.max.reauth.ms`), by listener and
        mechanism, such as `sasl_tls.oauthbearer`.
    """

    certificate: Path
    authority: Path
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    host: str = "localhost"
    tokens: TrustedTokens | None = None
    sessions: Mapping[str, int] = field(default_factory=dict)

    @property
    def jvm(self) -> list[str]:
        """Options for the broker's Java: Kafka fetches keys from no address that it was not told of."""
        if self.tokens is None:
            return []
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.tokens.keys_url}"]

    def properties(self) -> dict[str, str]:
        """Lines of `server.properties`, in addition to those of every node."""
        for word in (*self.users, *self.users.values()):
            if not _SIMPLE.fullmatch(word):
                raise BrokerError(
                    "names and passwords of a local broker's users: letters, digits, . _ ~ -"
                )
        properties = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "listener.name.mutual_tls.ssl.client.auth": "required",
            # a client with a certificate is known by its common name
            "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": ",".join(
                (*_MECHANISMS, "PLAIN", *(["OAUTHBEARER"] if self.tokens else []))
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        for place, milliseconds in self.sessions.items():
            properties[f"listener.name.{place}.connections.max.reauth.ms"] = str(milliseconds)
        plain = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        for listener in ("sasl_tls", "sasl_plaintext"):
            prefix = f"listener.name.{listener}"
            for mechanism in _MECHANISMS:
                properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = (
                    f"{_PACKAGE}.scram.ScramLoginModule required;"
                )
            properties[f"{prefix}.plain.sasl.jaas.config"] = (
                f"{_PACKAGE}.plain.PlainLoginModule required {plain};"
            )
            if self.tokens is not None:
                properties |= self.tokens.properties(prefix)
        return properties

    def credentials(self) -> list[str]:
        """Arguments for the storage tool, salted: `ps` shows a command line to everybody."""
        arguments = []
        for name, password in self.users.items():
            for mechanism, digest in _MECHANISMS.items():
                salt = os.urandom(16)
                salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, _ITERATIONS)
                arguments += [
                    "--add-scram",
                    f'{mechanism}=[name="{name}",iterations={_ITERATIONS},'
                    f'salt="{b64encode(salt).decode()}",'
                    f'saltedpassword="{b64encode(salted).decode()}"]',
                ]
        return arguments
