"""The keys of `[kafka]` that say how to connect and who logs in. No key holds a secret."""

from __future__ import annotations

from streamforest.io.kafka.auth.connection import MECHANISMS, PROTOCOLS
from streamforest.io.kafka.auth.tokens import parse_extensions
from streamforest.runtime.config.options import Option, choice, is_url, text

_PLACE = Option(
    lambda value: isinstance(value, str) and value.strip() != "" and "\0" not in value,
    "the name of a variable or file, not the secret itself",
    None,
    shown=False,
)
SECURITY = {
    "security_protocol": choice(*PROTOCOLS, default="PLAINTEXT"),
    "ssl_cafile": text("the path of a PEM file with the broker's certificate authority"),
    "ssl_certfile": text("the path of a PEM file with the client's certificate"),
    "ssl_keyfile": text("the path of a PEM file with the client's private key"),
    "ssl_key_password_env": _PLACE,
    "ssl_key_password_file": _PLACE,
    "sasl_mechanism": choice(*MECHANISMS, default=MECHANISMS[0]),
    "sasl_username": text("the user name as text (put a number in quotes)"),
    "sasl_password_env": _PLACE,
    "sasl_password_file": _PLACE,
    "sasl_oauthbearer_token_endpoint_url": Option(
        is_url, "the address of a token endpoint, such as 'https://host/token'", None, shown=False
    ),
    "sasl_oauthbearer_client_id": text("the id of the client as text"),
    "sasl_oauthbearer_client_secret_env": _PLACE,
    "sasl_oauthbearer_client_secret_file": _PLACE,
    "sasl_oauthbearer_scope": text("the scope of the token as text"),
    "sasl_oauthbearer_extensions": Option(
        lambda value: isinstance(value, str) and parse_extensions(value) is not None,
        "name=value, several with commas, such as 'logicalCluster=lkc-1,identityPoolId=pool-1'",
        None,
    ),
    "sasl_oauthbearer_ssl_cafile": text("the path of a PEM file with the endpoint's authority"),
    "allow_unencrypted_login": Option(
        lambda value: isinstance(value, bool), "true or false", False
    ),
}
"""The keys of `[kafka]` that say how to connect, in addition to `bootstrap_servers`."""
