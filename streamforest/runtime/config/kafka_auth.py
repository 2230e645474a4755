"""The part of `[kafka]` that says how to connect to the broker, checked as a whole.

No key holds a secret: a key names the environment variable or the file that holds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError
from streamforest.io.kafka.auth import iam
from streamforest.io.kafka.auth.connection import PASSWORD_MECHANISMS, Connection, Security
from streamforest.io.kafka.auth.secrets import SecretPlace
from streamforest.io.kafka.auth.tokens import ClientCredentials, is_private, parse_extensions
from streamforest.runtime.config import schema
from streamforest.runtime.config.layers import overlay
from streamforest.runtime.config.login_keys import SECURITY
from streamforest.runtime.config.options import Checker, Option

PASSWORD_VARIABLE = "STREAMFOREST_KAFKA_PASSWORD"
"""The variable with the password if no setting names another."""
_SECRET = re.compile(r"pass(word|wd|phrase)?|pwd|secret|token|credential", re.IGNORECASE)
_SSL_KEYS = (
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_key_password_env",
    "ssl_key_password_file",
)
_PASSWORD_KEYS = ("sasl_username", "sasl_password_env", "sasl_password_file")
_TOKEN_KEYS = tuple(key for key in SECURITY if key.startswith("sasl_oauthbearer_"))
_SASL_KEYS = ("sasl_mechanism", *_PASSWORD_KEYS, *_TOKEN_KEYS, "allow_unencrypted_login")


def refuse_secrets(check: Checker, known: Mapping[str, Option]) -> None:
    """Refuse a secret in a file or a flag, without repeating it."""
    raw = check.table("kafka")
    servers = raw.get("bootstrap_servers")
    if isinstance(servers, str) and servers.strip():
        try:
            Connection(servers)
        except ConfigError as error:
            check.hidden(
                "kafka.bootstrap_servers", str(error).removeprefix("kafka.bootstrap_servers: ")
            )
            del raw["bootstrap_servers"]
    elif "://" in str(servers) or "@" in str(
        servers
    ):  # for example in a list: do not repeat it either
        check.hidden(
            "kafka.bootstrap_servers",
            f"expected {known['bootstrap_servers'].expected} (value not shown)",
        )
        del raw["bootstrap_servers"]
    for key in [key for key in raw if key not in known and _SECRET.search(key)]:
        own = _key_meant(key.lower())
        check.hidden(
            f"kafka.{key}",
            "secrets do not belong here (value not shown; replace the secret if others can read this): "
            f"put it into an environment variable or a file, and name that in kafka.{own}_env or "
            f"kafka.{own}_file",
        )
        del raw[key]


def _key_meant(key: str) -> str:
    """The key that names where the secret is which somebody has written into the file itself."""
    if "oauth" in key or "client" in key:
        return "sasl_oauthbearer_client_secret"
    return "ssl_key_password" if "key" in key else "sasl_password"


def read_security(check: Checker, values: Mapping[str, Any]) -> Security:
    """The security settings; every problem is noted, including files and secrets that cannot be read."""
    security = Security(
        protocol=values["security_protocol"],
        ca_file=_path(values["ssl_cafile"]),
        cert_file=_path(values["ssl_certfile"]),
        key_file=_path(values["ssl_keyfile"]),
        key_password=_place(check, values, "ssl_key_password"),
        mechanism=values["sasl_mechanism"],
        user=values["sasl_username"],
        password=_place(check, values, "sasl_password"),
        credentials=_credentials(check, values),
    )
    _refuse_idle_keys(check, security)
    if security.sasl:
        security = _check_login(check, values, security)
    if security.tls and security.key_file is not None and security.cert_file is None:
        check.problems.append(
            "kafka.ssl_certfile: missing; ssl_keyfile is the key of a certificate"
        )
    if not any(problem.startswith("kafka") for problem in check.problems):
        _try_files(check, security)
    return security


def _try_files(check: Checker, security: Security) -> None:
    """Note every file and secret that cannot be read, not only the first."""
    looks: list[Callable[[], object]] = [security.context] if security.tls else []
    if security.sasl and security.password is not None:
        looks.append(security.password.read)
    if security.sasl and security.credentials is not None:
        looks.append(security.credentials.secret.read)
    for look in looks:
        try:
            look()
        except ConfigError as error:
            check.problems.append(str(error))


def _credentials(check: Checker, values: Mapping[str, Any]) -> ClientCredentials | None:
    """Who asks for tokens, and where; None for another mechanism, or if something is missing."""
    endpoint, client = (
        values[f"sasl_oauthbearer_{key}"] for key in ("token_endpoint_url", "client_id")
    )
    place = _place(check, values, "sasl_oauthbearer_client_secret")
    if values["sasl_mechanism"] != "OAUTHBEARER" or None in (endpoint, client, place):
        return None
    assert place is not None
    extensions = values["sasl_oauthbearer_extensions"]
    return ClientCredentials(
        endpoint,
        client,
        place,
        values["sasl_oauthbearer_scope"],
        () if extensions is None else parse_extensions(extensions) or (),
        _path(values["sasl_oauthbearer_ssl_cafile"]),
    )


def _check_login(check: Checker, values: Mapping[str, Any], security: Security) -> Security:
    """The login with its defaults; what is missing of it is noted."""
    _refuse_other_mechanisms(check, security.mechanism)
    if security.mechanism == "OAUTHBEARER":
        _check_token(check, values)
    elif security.mechanism == "AWS_MSK_IAM":
        if security.protocol != "SASL_SSL":
            check.problem(
                "kafka.security_protocol", security.protocol, "'AWS_MSK_IAM' needs 'SASL_SSL'"
            )
        if not iam.is_installed():
            check.problem("kafka.sasl_mechanism", security.mechanism, iam.MISSING)
    else:
        security = _check_password(check, security)
    if security.protocol == "SASL_PLAINTEXT" and not values["allow_unencrypted_login"]:
        check.problem(
            "kafka.security_protocol",
            security.protocol,
            "the login would be sent unencrypted; use 'SASL_SSL', or, if you trust the "
            "network, set kafka.allow_unencrypted_login = true",
        )
    return security


def _refuse_other_mechanisms(check: Checker, mechanism: str) -> None:
    """Note keys of another kind of login."""
    raw = check.table("kafka")
    for keys, theirs, kinds in (
        (_PASSWORD_KEYS, PASSWORD_MECHANISMS, "'SCRAM-SHA-512', 'SCRAM-SHA-256' or 'PLAIN'"),
        (_TOKEN_KEYS, ("OAUTHBEARER",), "'OAUTHBEARER'"),
    ):
        idle = [key for key in keys if key in raw]
        if mechanism not in theirs and idle:
            check.problems.append(
                f"kafka.{', kafka.'.join(idle)}: has no effect with kafka.sasl_mechanism = "
                f"'{mechanism}'; set that to {kinds}, or remove them"
            )


def _check_token(check: Checker, values: Mapping[str, Any]) -> None:
    """Note what is missing for client credentials."""
    secret = "sasl_oauthbearer_client_secret"
    wanted = {
        "sasl_oauthbearer_token_endpoint_url": "give the address of the token endpoint",
        "sasl_oauthbearer_client_id": "give the id of the client",
    }
    for key, remedy in wanted.items():
        if values[key] is None and not any(p.startswith(f"kafka.{key}") for p in check.problems):
            check.problems.append(f"kafka.{key}: missing; {remedy}")
    if values[f"{secret}_env"] is None and values[f"{secret}_file"] is None:
        check.problems.append(
            f"kafka.{secret}_env: missing; name an environment variable that holds the client's secret "
            f"(or a file, with kafka.{secret}_file)"
        )
    endpoint = values["sasl_oauthbearer_token_endpoint_url"]
    if endpoint is not None and not is_private(endpoint) and not values["allow_unencrypted_login"]:
        check.hidden(
            "kafka.sasl_oauthbearer_token_endpoint_url",
            "the client's secret would be sent unencrypted; use https, or, if you trust the network, set "
            "kafka.allow_unencrypted_login = true",
        )


def _check_password(check: Checker, security: Security) -> Security:
    if security.user is None and not any(
        p.startswith("kafka.sasl_username") for p in check.problems
    ):
        check.problems.append("kafka.sasl_username: missing; give the user name")
    if security.password is None:
        default = SecretPlace("kafka.sasl_password_env", PASSWORD_VARIABLE)
        security = Security(**{**vars(security), "password": default})
        try:
            default.read()
        except ConfigError:
            check.problems.append(
                "kafka.sasl_password_env: missing; name an environment variable that holds the "
                f"password (or a file, with kafka.sasl_password_file), or set {PASSWORD_VARIABLE}"
            )
    return security


def _refuse_idle_keys(check: Checker, security: Security) -> None:
    """Note keys without effect: whoever set them expects one."""
    raw = check.table("kafka")
    for used, keys, kinds in (
        (security.tls, _SSL_KEYS, "'SSL' or 'SASL_SSL'"),
        (security.sasl, _SASL_KEYS, "'SASL_SSL' or 'SASL_PLAINTEXT'"),
    ):
        idle = [key for key in keys if key in raw]
        if not used and idle:
            check.problems.append(
                f"kafka.{', kafka.'.join(idle)}: has no effect with kafka.security_protocol = "
                f"'{security.protocol}'; set that to {kinds}, or remove them"
            )


def _place(check: Checker, values: Mapping[str, Any], name: str) -> SecretPlace | None:
    variable, file = values[f"{name}_env"], values[f"{name}_file"]
    if variable is not None and file is not None:
        check.hidden(f"kafka.{name}_file", f"kafka.{name}_env is set too; remove one of the two")
        return None
    if variable is not None:
        return SecretPlace(f"kafka.{name}_env", variable=variable)
    return None if file is None else SecretPlace(f"kafka.{name}_file", file=Path(file))


def _path(value: str | None) -> Path | None:
    return None if value is None else Path(value)


def _refuse_other_tables(check: Checker) -> None:
    """Note unknown tables, and flags without effect. A variable is no mistake: it may be meant for a
    pipeline file that another command reads.
    """
    for dotted, origin in check.settings.origins.items():
        table, _, key = dotted.partition(".")
        if table not in schema.TABLES:
            if not key:
                check.unknown(table, schema.TABLES)
        elif table != "kafka" and key and origin == "--set":
            check.hidden(
                dotted, "has no effect without a pipeline file; only kafka.… settings have"
            )


def connection_from(
    environ: Mapping[str, str], flags: Iterable[str], servers: str | None, default: str
) -> Connection:
    """The connection for a command without a pipeline file: flags override the environment.

    `STREAMFOREST_KAFKA__SECURITY_PROTOCOL=SASL_SSL` and `--set kafka.security_protocol=SASL_SSL` both
    mean `security_protocol = "SASL_SSL"` in `[kafka]`.
    """
    check = Checker(overlay({}, environ, flags))
    _refuse_other_tables(check)
    known = {**schema.KAFKA, **SECURITY}
    refuse_secrets(check, known)
    values = check.read("kafka", known)
    security = read_security(check, values)
    if check.problems:
        raise ConfigError("; ".join(check.problems))
    where = servers or values["bootstrap_servers"] or default
    return Connection(where, security, values["retry_seconds"])
