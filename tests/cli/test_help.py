"""Help: every command has examples, which are right, and shells complete what is typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from streamforest.cli import root
from streamforest.cli.usage import examples_of


def commands(
    group: click.Group = root, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with its path."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_examples_that_it_accepts(path: tuple[str, ...]) -> None:
    command = ALL[path]
    examples = examples_of(command)
    assert examples, f"`streamforest {' '.join(path)} --help` has no example"
    shown = CliRunner().invoke(root, [*path, "--help"]).stdout
    for example in examples:
        assert example in shown, "click has filled the lines: is there a \\b before them?"
        words = shlex.split(example.split(" > ")[0])
        assert words[: len(path) + 1] == ["streamforest", *path]
        command.make_context(path[-1], words[len(path) + 1 :]).close()


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_is_explained(path: tuple[str, ...]) -> None:
    for option in ALL[path].params:
        if isinstance(option, click.Option) and option.name not in ("limit", "events"):
            assert option.help or option.show_default or option.hidden, option.name


def test_a_command_without_arguments_prints_its_help() -> None:
    for arguments in ([], ["snapshots"], ["bench"]):
        done = CliRunner().invoke(root, arguments)
        assert "Commands:" in done.output
        assert "Error" not in done.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_given_their_completion(shell: str) -> None:
    done = CliRunner().invoke(
        root,
        [],
        prog_name="streamforest",
        env={"_STREAMFOREST_COMPLETE": f"{shell}_source"},
        complete_var="_STREAMFOREST_COMPLETE",
    )
    assert done.exit_code == 0, done.output
    assert "_STREAMFOREST_COMPLETE" in done.stdout


def test_a_command_is_completed() -> None:
    done = CliRunner().invoke(
        root,
        [],
        prog_name="streamforest",
        env={
            "_STREAMFOREST_COMPLETE": "bash_complete",
            "COMP_WORDS": "streamforest do",
            "COMP_CWORD": "1",
        },
        complete_var="_STREAMFOREST_COMPLETE",
    )
    assert done.stdout.splitlines() == ["plain,doctor"]
