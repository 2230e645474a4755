"""A secured broker for tests, with its own certificates, users and ACLs.

    def test_my_pipeline(secure_kafka_broker):
        secure_kafka_broker.grant("alice", Need("Read", "topic", "orders"))
        text = secure_kafka_broker.settings("alice")      # the lines of [kafka]

The users are `alice` and `bob`, and `streamforest-test` by tokens of `secure_kafka_broker.issuer`; none may
do anything that was not granted.
"""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from streamforest.io.kafka.clients import admin
from streamforest.io.kafka.permissions import Need
from streamforest.testing.broker.security import BrokerSecurity, TrustedTokens
from streamforest.testing.broker.server import Broker
from streamforest.testing.certificates import Authority
from streamforest.testing.issuer import Issuer

USERS = ("alice", "bob")
CLIENT = "streamforest-test"
"""Who gets tokens from the issuer; to the broker, a user of that name."""
SESSION_MS = 3_000
"""After so long the broker ends sessions: by OAUTHBEARER over TLS, and by SCRAM-SHA-256 without."""
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}


class SecureBroker:
    """An ephemeral broker with every kind of listener, its authority, and its users' passwords.

    The certificate is for `localhost` only: to TLS `127.0.0.1` is another name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.passwords = {user: secrets.token_urlsafe(18) for user in USERS}
        self.issuer = Issuer({CLIENT: secrets.token_urlsafe(18)})
        security = BrokerSecurity(
            self.authority.node("localhost"),
            self.authority.file,
            self.passwords,
            tokens=TrustedTokens(self.issuer.keys_url, self.issuer.url, self.issuer.audience),
            sessions={
                "sasl_tls.oauthbearer": SESSION_MS,
                "sasl_plaintext.scram-sha-256": SESSION_MS,
            },
        )
        self.broker = Broker(security=security)

    @property
    def servers(self) -> str:
        """The plaintext listener, for the operator: its clients may do everything."""
        return self.broker.servers

    def at(self, listener: str) -> str:
        """The address of `tls`, `mutual_tls`, `sasl_tls` or `sasl_plaintext`."""
        return self.broker.at(listener)

    def password_file(self, user: str) -> Path:
        """A file with a user's password."""
        path = self.folder / f"{user}.password"
        path.touch(mode=0o600)
        path.write_text(self.passwords[user] + "\n", encoding="utf-8")
        return path

    def settings(self, user: str, mechanism: str = "SCRAM-SHA-512") -> str:
        """The lines of `[kafka]` with which a pipeline logs in over TLS."""
        return (
            f'bootstrap_servers = "{self.at("sasl_tls")}"\nsecurity_protocol = "SASL_SSL"\n'
            f'ssl_cafile = "{self.authority.file}"\nsasl_username = "{user}"\n'
            f'sasl_mechanism = "{mechanism}"\nsasl_password_file = "{self.password_file(user)}"\n'
        )

    @property
    def secret_file(self) -> Path:
        """A file with the secret of the client `CLIENT`."""
        path = self.folder / f"{CLIENT}.secret"
        path.touch(mode=0o600)
        path.write_text(self.issuer.clients[CLIENT] + "\n", encoding="utf-8")
        return path

    def token_settings(self) -> str:
        """The lines of `[kafka]` with which a pipeline logs in over TLS with tokens of `issuer`."""
        return (
            f'bootstrap_servers = "{self.at("sasl_tls")}"\nsecurity_protocol = "SASL_SSL"\n'
            f'ssl_cafile = "{self.authority.file}"\nsasl_mechanism = "OAUTHBEARER"\n'
            f'sasl_oauthbearer_token_endpoint_url = "{self.issuer.token_url}"\n'
            f'sasl_oauthbearer_client_id = "{CLIENT}"\n'
            f'sasl_oauthbearer_client_secret_file = "{self.secret_file}"\n'
        )

    def set_password(self, user: str, password: str) -> None:
        """Change a user's password for SCRAM-SHA-256, on the running broker."""
        changed = UserScramCredentialUpsertion(
            user, ScramMechanism.SCRAM_SHA_256, password, iterations=4_096
        )
        with closing(admin(self.servers)) as client:
            client.alter_user_scram_credentials([changed])

    def grant(self, user: str, *needs: Need) -> None:
        """Grant permissions; they are in force when this returns."""
        with closing(admin(self.servers)) as client:
            client.create_acls([_acl(user, need) for need in needs])
            for need in needs:
                self._await(client, user, need, there=True)

    def revoke(self, user: str, *needs: Need) -> None:
        """Revoke permissions; that is in force when this returns."""
        with closing(admin(self.servers)) as client:
            client.delete_acls([_filter(user, need) for need in needs])
            for need in needs:
                self._await(client, user, need, there=False)

    def _await(self, client: Any, user: str, need: Need, there: bool) -> None:
        deadline = time.monotonic() + 20
        while bool(client.describe_acls(_filter(user, need))[0]) != there:
            assert time.monotonic() < deadline, f"{need} of {user} did not change"
            time.sleep(0.02)

    def __enter__(self) -> SecureBroker:
        self.issuer.__enter__()
        self.broker.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.broker.stop()
        self.issuer.__exit__()


def _acl(user: str, need: Need) -> Any:
    pattern = ResourcePattern(_RESOURCES[need.resource], need.name)
    operation = ACLOperation[need.operation.upper()]
    return ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern)


def _filter(user: str, need: Need) -> Any:
    literal = ACLResourcePatternType.LITERAL
    pattern = ResourcePatternFilter(_RESOURCES[need.resource], need.name, literal)
    operation = ACLOperation[need.operation.upper()]
    return ACLFilter(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern)
