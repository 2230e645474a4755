"""How clients reach a broker: its address, TLS, and their login.

This one module turns settings into kafka-python's arguments. Every client of the package gets them from
here: consumer, producer, reader, the topics' admin, replay, dead letters, benchmarks.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError
from streamforest.io.kafka.auth.secrets import SecretPlace
from streamforest.io.kafka.auth.tokens import ClientCredentials, tokens_of
from streamforest.text import printable, shown

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""Logins with a name and a password."""
MECHANISMS = (*PASSWORD_MECHANISMS, "OAUTHBEARER", "AWS_MSK_IAM")
_ADDRESSES = "expected host:port, several with commas"
_HOST = re.compile(r"\[[0-9A-Za-z:.%]+\]|[^\s:/\[\],]+")


@dataclass(frozen=True)
class Security:
    """What a client demands of the broker and how it identifies itself. The default is neither."""

    protocol: str = "PLAINTEXT"
    ca_file: Path | None = None
    """Authorities that may have signed the broker's certificate; None: those of the machine."""
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: SecretPlace | None = None
    mechanism: str = MECHANISMS[0]
    user: str | None = None
    password: SecretPlace | None = None
    credentials: ClientCredentials | None = None
    """For OAUTHBEARER."""

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted and the broker's identity checked."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        """Whether the client logs in."""
        return self.protocol.startswith("SASL")

    @property
    def login(self) -> str:
        """Who logs in, in words; never the secret."""
        if self.mechanism == "AWS_MSK_IAM":
            return "the AWS identity of this machine"
        if self.credentials is not None and self.mechanism == "OAUTHBEARER":
            return f"client '{printable(self.credentials.client_id, 100)}'"
        return f"user '{printable(self.user or '', 100)}'"

    @property
    def principal(self) -> str:
        """The name under which the broker knows the client, as far as the settings tell."""
        if self.sasl and self.mechanism not in PASSWORD_MECHANISMS:
            return self.login
        if self.user is not None and self.sasl:
            return f"User:{self.user}"
        return "the client certificate's subject" if self.cert_file else "User:ANONYMOUS"

    def context(self) -> ssl.SSLContext:
        """The TLS context of the client; ConfigError names the file that is at fault."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca_file is None:
            context.load_default_certs()
        else:
            _loaded("ssl_cafile", self.ca_file, lambda file: context.load_verify_locations(file))
        if self.cert_file is not None:
            self._load_certificate(context, self.cert_file, self.key_file or self.cert_file)
        return context

    def _load_certificate(self, context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
        place = self.key_password
        # never None: OpenSSL would ask at the terminal for the password of an encrypted key
        password = "" if place is None else place.current()
        encrypted: list[bool] = []
        _loaded(
            "ssl_keyfile",
            key_file,
            lambda file: encrypted.append(b"ENCRYPTED" in file.read_bytes()),
        )
        _loaded(
            "ssl_certfile",
            cert_file,
            lambda file: context.load_cert_chain(file, key_file, password),
            "the private key is encrypted, and its password (kafka.ssl_key_password_env or "
            "kafka.ssl_key_password_file) is missing or wrong"
            if encrypted == [True]
            else "this certificate or its private key cannot be read as PEM",
        )

    def arguments(self) -> dict[str, Any]:
        """Arguments for any client of kafka-python. Files and secrets are read now."""
        arguments: dict[str, Any] = {"security_protocol": self.protocol}
        if self.tls:
            arguments["ssl_context"] = self.context()
        return {**arguments, **self.login_arguments()}

    def login_arguments(self) -> dict[str, Any]:
        """Arguments for the login alone; none if there is none. A password that was rotated is read again
        at each login (`compat.logins`).
        """
        if not self.sasl:
            return {}
        arguments: dict[str, Any] = {"sasl_mechanism": self.mechanism}
        if self.mechanism == "OAUTHBEARER":
            assert self.credentials is not None
            arguments["sasl_oauth_token_provider"] = tokens_of(self.credentials)
        elif self.mechanism != "AWS_MSK_IAM":
            assert self.user is not None
            assert self.password is not None
            arguments["sasl_plain_username"] = self.user
            arguments["sasl_plain_password"] = self.password.current()
        return arguments


@dataclass(frozen=True)
class Connection:
    """A broker's address and how to reach it."""

    servers: str
    security: Security = Security()
    retry_seconds: float = 60.0
    """How long a cluster in trouble is asked again before a command, or a start, gives up."""

    def __post_init__(self) -> None:
        """ConfigError for an invalid address, and for one that contains a login: addresses are printed,
        logins must not be.
        """
        if "@" in self.servers or "://" in self.servers:
            raise ConfigError(
                "kafka.bootstrap_servers: expected host:port, several with commas, and no login or scheme in "
                "it (value not shown); kafka.sasl_username and kafka.security_protocol are for those"
            )
        wrong = address_problem(self.servers)
        if wrong is not None:
            raise ConfigError(f"kafka.bootstrap_servers: {wrong}")

    @staticmethod
    def to(address: str | Connection) -> Connection:
        """A connection as it is; a plain address becomes a connection without security."""
        return Connection(address) if isinstance(address, str) else address

    def arguments(self) -> dict[str, Any]:
        """Arguments for any client of kafka-python."""
        return {"bootstrap_servers": self.servers, **self.security.arguments()}


def _loaded(
    key: str, file: Path, load: Callable[[Path], None], otherwise: str = "holds no PEM certificate"
) -> None:
    """Load a file; ConfigError names it and what is wrong: `otherwise`, if OpenSSL does not say."""
    try:
        load(file)
    except FileNotFoundError:
        raise ConfigError(f"kafka.{key} = '{file}': no such file") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            otherwise = "the private key does not belong to this certificate"
        raise ConfigError(f"kafka.{key} = '{file}': {otherwise}") from None
    except OSError as error:
        raise ConfigError(f"kafka.{key} = '{file}': cannot be read: {error.strerror}") from None


def address_problem(servers: str) -> str | None:
    """What is wrong with a list of servers; None if nothing is.

    `Connection` refuses a login or a scheme in it, without repeating the value.

    >>> address_problem("a:9092, b:9093"), address_problem("[::1]:9092")
    (None, None)
    >>> address_problem("localhost")
    "expected host:port, several with commas; 'localhost' has no port, e.g. localhost:9092"
    >>> address_problem("h:99999")
    "expected host:port, several with commas; the port of 'h:99999' is not a number from 1 to 65535"
    """
    for part in servers.split(","):
        server = part.strip()
        host, colon, port = server.rpartition(":")
        if not server:
            return f"{_ADDRESSES}; there is nothing before or after a comma"
        if _HOST.fullmatch(server):
            return f"{_ADDRESSES}; {shown(server)} has no port, e.g. {server}:9092"
        if not colon or not _HOST.fullmatch(host):
            return f"{_ADDRESSES}; {shown(server)} has no valid host"
        if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65_535:
            return f"{_ADDRESSES}; the port of {shown(server)} is not a number from 1 to 65535"
    return None
