"""`[serve]`: where `streamforest serve` listens, whom it answers, and how much it takes on.

All of its keys concern the server alone. Two replicas of one pipeline may differ in every one of them and
still give the same answers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError
from streamforest.io.kafka.auth.secrets import SecretPlace
from streamforest.runtime.config.layers import overlay
from streamforest.runtime.config.options import Checker, Option, whole

TOKEN_VARIABLE = "STREAMFOREST_SERVE_TOKEN"
"""Where the bearer token is looked for if no key says so."""


def _text(expected: str, default: Any = None, shown: bool = True) -> Option:
    return Option(
        lambda value: isinstance(value, str) and value.strip() != "" and "\0" not in value,
        expected,
        default,
        shown=shown,
    )


_FLAG = Option(lambda value: isinstance(value, bool), "true or false", False)
SERVE = {
    "host": _text("an address to listen on", "127.0.0.1"),
    "port": whole(0, 65_535, default=9110),
    "copies": whole(1, 2, default=2),
    "max_behind_seconds": whole(1, 86_400, default=60),
    "max_request_bytes": whole(64, 1 << 30, default=4 << 20),
    "max_request_events": whole(1, 100_000, default=1_000),
    "max_requests_per_second": whole(1, 10**6, default=None),
    "drain_seconds": whole(0, 600, default=5),
    "accept_labels": _FLAG,
    "token_env": _text("the name of a variable, not the token itself", shown=False),
    "token_file": _text("the path of a file with the token, not the token itself", shown=False),
    "allow_anonymous": _FLAG,
    "tls_certfile": _text("the path of a PEM file with the server's certificate"),
    "tls_keyfile": _text("the path of a PEM file with the server's private key"),
    "tls_client_cafile": _text("the path of a PEM file with the authority of the clients"),
}


@dataclass(frozen=True)
class ServeTable:
    """`[serve]`, checked."""

    host: str = "127.0.0.1"
    port: int = 9110
    copies: int = 2
    max_behind_seconds: int = 60
    max_request_bytes: int = 4 << 20
    max_request_events: int = 1_000
    max_requests_per_second: int | None = None
    drain_seconds: int = 5
    accept_labels: bool = False
    allow_anonymous: bool = False
    token: SecretPlace | None = None
    tls_certfile: Path | None = None
    tls_keyfile: Path | None = None
    tls_client_cafile: Path | None = None


def read_serve(check: Checker, environ: Mapping[str, str]) -> ServeTable:
    """The table, with its defaults; problems are noted."""
    values = check.read("serve", SERVE)
    variable, file = values.pop("token_env"), values.pop("token_file")
    token = None
    if variable is not None and file is not None:
        check.hidden("serve.token_file", "serve.token_env is set too; remove one of the two")
    elif variable is not None:
        token = SecretPlace("serve.token_env", variable=variable)
    elif file is not None:
        token = SecretPlace("serve.token_file", file=Path(file))
    elif TOKEN_VARIABLE in environ:
        token = SecretPlace("serve.token_env", variable=TOKEN_VARIABLE)
    for key in ("tls_certfile", "tls_keyfile", "tls_client_cafile"):
        values[key] = None if values[key] is None else Path(values[key])
    if (values["tls_certfile"] is None) != (values["tls_keyfile"] is None):
        check.problems.append(
            "serve.tls_certfile and serve.tls_keyfile go together; give both, or neither"
        )
    if values["tls_client_cafile"] is not None and values["tls_certfile"] is None:
        check.problems.append(
            "serve.tls_client_cafile: clients can be asked for a certificate only by a server that has "
            "one; give serve.tls_certfile and serve.tls_keyfile too"
        )
    return ServeTable(**values, token=token)


def serve_from(environ: Mapping[str, str], flags: Iterable[str]) -> ServeTable:
    """The table for a command without a pipeline file: flags override the environment."""
    check = Checker(overlay({}, environ, flags))
    for dotted, origin in check.settings.origins.items():
        if origin == "--set" and not dotted.startswith("serve"):
            check.hidden(
                dotted, "has no effect without a pipeline file; only serve.… settings have"
            )
    table = read_serve(check, environ)
    if check.problems:
        raise ConfigError("; ".join(check.problems))
    return table


def refuse_open_door(table: ServeTable) -> None:
    """ConfigError for a server that anybody on the network could ask, unless that is meant."""
    guarded = table.token is not None or table.tls_client_cafile is not None
    if guarded or table.allow_anonymous or is_loopback(table.host):
        return
    raise ConfigError(
        f"serve.host = {table.host!r}: anybody who reaches this address could ask the model; give a token "
        f"(serve.token_env, serve.token_file or {TOKEN_VARIABLE}), ask clients for certificates "
        "(serve.tls_client_cafile), or say serve.allow_anonymous = true"
    )


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
