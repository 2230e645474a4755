"""A list of servers on the command line: checked before anything is asked."""

from __future__ import annotations

import click

from streamforest.errors import ConfigError
from streamforest.io.kafka.auth.connection import Connection


def checked_servers(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """The option as it is, or a usage error; callback of an option that takes host:port.

    What an option without a value stands for is no address.
    """
    if value is not None and value != getattr(option, "flag_value", None):
        try:
            Connection(value)
        except ConfigError as error:
            told = str(error).removeprefix("kafka.bootstrap_servers: ")
            raise click.BadParameter(told, ctx, option) from error
    return value
