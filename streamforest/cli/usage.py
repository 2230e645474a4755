"""A wrong command line as one line: what is wrong, the nearest that would be right, and where to look."""

from __future__ import annotations

import re

import click

from streamforest.text import nearest

_NO_CHOICE = re.compile(r"'([^']*)' is not one of ")


def in_one_line(error: click.UsageError) -> str:
    """The message of a usage error, in place of click's three lines."""
    text = " ".join(error.format_message().split())
    text = text.replace("is not a valid integer range", "is no whole number")
    text = text.replace("is not a valid float range", "is no number").rstrip(".")
    command = None if error.ctx is None else error.ctx.command
    path = "streamforest" if error.ctx is None else error.ctx.command_path
    if isinstance(error, click.MissingParameter) and command is not None:
        examples = examples_of(command)
        return f"{text}; for example: {examples[0] if examples else f'{path} --help'}"
    choices = _choices(error)
    wrong = _NO_CHOICE.search(text)
    if wrong is not None and choices:
        near = nearest(wrong[1], choices)
        text += f"; {near}" if near.startswith("did") else ""
    if isinstance(error, click.NoSuchOption) and not error.possibilities and command is not None:
        named = [name for param in command.params for name in param.opts if name.startswith("--")]
        near = nearest(error.option_name, named)
        text += f"; {near}" if near.startswith("did") else ""
    return f"{text} See {path} --help" if text.endswith("?") else f"{text}; see {path} --help"


def _choices(error: click.UsageError) -> list[str]:
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param else None
    return [str(one) for one in kind.choices] if isinstance(kind, click.Choice) else []


def examples_of(command: click.Command) -> list[str]:
    """The examples in a command's help: the lines below "Example:" or "Examples:"."""
    lines = [line.strip() for line in (command.help or "").splitlines()]
    below = [i for i, line in enumerate(lines) if line in ("Example:", "Examples:")]
    return [line for line in lines[below[0] :] if line.startswith("streamforest ")] if below else []
