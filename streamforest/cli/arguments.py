"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from streamforest.errors import ConfigError
from streamforest.io.kafka.auth.connection import Connection

PIPELINE = click.argument("pipeline", type=click.Path(path_type=Path))
SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="TABLE.KEY=VALUE",
    help="Override a setting, e.g. model.n_trees=20. May be repeated. The environment variable "
    "STREAMFOREST_MODEL__N_TREES does the same. A flag overrides the environment, and the environment "
    "overrides the file.",
)
PARTITION = click.option(
    "--partition",
    type=click.IntRange(0),
    default=None,
    metavar="N",
    help="Which partition, if each has a forest of its own (kafka.model_scope).",
)
ACCEPT_VERSION_CHANGE = click.option(
    "--accept-version-change",
    is_flag=True,
    help="Learn journalled events again by this version's rule, even if another version's rule learned "
    "them.",
)


def check_servers(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Callback of an option that takes host:port: a usage error for anything else.

    The flag value of an option that was given without a value passes unchecked.
    """
    if value is not None and value != getattr(option, "flag_value", None):
        try:
            Connection(value)
        except ConfigError as error:
            problem = str(error).removeprefix("kafka.bootstrap_servers: ")
            raise click.BadParameter(problem, ctx, option) from error
    return value
