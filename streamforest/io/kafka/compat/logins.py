"""Logins of kafka-python that use what counts now: a rotated password, renewed AWS credentials.

kafka-python keeps the password that a client was created with, for as long as the client lives, and logs in
with it again and again: at each new connection, and each time the broker ends a session
(`connections.max.reauth.ms`). These classes take the place of its own and read the password again first.
"""

from __future__ import annotations

from typing import Any

from kafka.net.sasl import get_sasl_mechanism, register_sasl_mechanism
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram

from streamforest.io.kafka.auth.iam import IamLogin
from streamforest.io.kafka.auth.secrets import CurrentSecret


class PlainLogin(SaslMechanismPlain):  # type: ignore[misc]
    """PLAIN with the password of now."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**_up_to_date(config))


class ScramLogin(SaslMechanismScram):  # type: ignore[misc]
    """SCRAM with the password of now."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**_up_to_date(config))


_LOGINS: dict[str, Any] = {
    "PLAIN": PlainLogin,
    "SCRAM-SHA-256": ScramLogin,
    "SCRAM-SHA-512": ScramLogin,
    "AWS_MSK_IAM": IamLogin,
}


def use_current_logins() -> None:
    """Let every client of this process log in with what counts now."""
    for name, login in _LOGINS.items():
        if get_sasl_mechanism(name) is not login:
            register_sasl_mechanism(name, login, overwrite=True)


def _up_to_date(config: dict[str, Any]) -> dict[str, Any]:
    password = config.get("sasl_plain_password")
    if isinstance(password, CurrentSecret):
        return {**config, "sasl_plain_password": password.read_again()}
    return config
