"""The `streamforest` command: its root, and the one place where errors become exit codes.

A subcommand's module is imported only when that subcommand is called: `--help` and `--version` answer
at once because they never load numba and River. For the same reason this module holds the one-line help
of each subcommand.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

import click

from streamforest.__main__ import interrupted
from streamforest.__main__ import (
    main as main,
)  # scripts that were installed earlier look for it here
from streamforest._version import __version__
from streamforest.cli.usage import in_one_line
from streamforest.errors import (
    ChangedError,
    ConfigError,
    InputError,
    StreamForestError,
    StreamForestWarning,
)
from streamforest.observe import logs
from streamforest.text import nearest, printable, printable_lines, shown

log = logging.getLogger(__name__)

SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "bench": (
        "streamforest.cli.bench:bench",
        "Measure forests and pipeline; reproduce the papers' figures.",
    ),
    "broker": (
        "streamforest.cli.broker:broker",
        "Run a real Apache Kafka on 127.0.0.1, for trying out.",
    ),
    "check": (
        "streamforest.cli.check:check",
        "Check a pipeline file and report every mistake at once.",
    ),
    "classes": (
        "streamforest.cli.classes:classes",
        "Announce a new class and the classes it is like.",
    ),
    "demo": (
        "streamforest.cli.demo:demo",
        "Watch a forest learn new classes, with a live page.",
    ),
    "doctor": (
        "streamforest.cli.doctor:doctor",
        "Check Java, broker, ports, caches, disk and kernels.",
    ),
    "dlq": ("streamforest.cli.dlq:dlq", "List and show dead letters, send them back after a fix."),
    "model": (
        "streamforest.cli.model:model",
        "Look into a trained model, ask it, let it explain an answer.",
    ),
    "promote": ("streamforest.cli.operate:promote", "Make a shadow model publish."),
    "replay": ("streamforest.cli.replay:replay", "Send a recorded data set or file to a topic."),
    "report": (
        "streamforest.cli.results:report",
        "Make one HTML page of a finished run from its predictions.",
    ),
    "schema": ("streamforest.cli.check:schema", "Print the JSON Schema of an event."),
    "serve": (
        "streamforest.cli.serve:serve",
        "Answer over HTTP, as a replica of a pipeline or from a snapshot.",
    ),
    "snapshots": (
        "streamforest.cli.snapshots:snapshots",
        "List the snapshots of a run, pin one, continue from one.",
    ),
    "whatif": (
        "streamforest.cli.operate:whatif",
        "Replay the journal with other parameters and compare.",
    ),
    "run": ("streamforest.cli.run:run", "Run a pipeline file: predict, learn, snapshot, resume."),
}
"""Name -> ("module:attribute", one-line help)."""

DEBUG_VARIABLE = "STREAMFOREST_DEBUG"
_REMEDIES = {
    errno.EEXIST: "; move it away, or give another place (run.folder, --folder)",
    errno.ENOTDIR: "; a file is where a folder should be: move it away, or give another place",
    errno.ENOENT: "; correct the path",
    errno.EACCES: "; give this user the right to it, or choose another place",
    errno.EROFS: "; choose another place (run.folder, --folder)",
    errno.ENOSPC: "; make room on that disk",
}
"""What to do about an error of the operating system."""
_MAX_ERROR = 4_000  # characters of one error: it may quote untrusted input


class Failure(click.ClickException):
    """A failed run: its message goes to stderr, without a traceback. Exit code 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Log the message if the run logs; else print it as click prints its own usage errors."""
        if self.exit_code == 1 and logs.is_set_up():
            log.error("%s", self.format_message())
            return
        text = printable_lines(self.format_message())
        click.echo(f"Error: {text}", file=file, err=file is None)


class Refusal(Failure):
    """A setting or an argument that the caller must change first. Exit code 2."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports one only to run it."""

    def __init__(
        self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order the help shows them."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one subcommand and return its command."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        if (
            signal.getsignal(signal.SIGINT) is interrupted
        ):  # from here on there may be work to finish
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{attribute} is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that is meant; a usage error suggests the nearest."""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {shown(name)}; {nearest(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands; those of the table above without importing them."""
        rows = [
            (
                name,
                self.lazy[name][1]
                if name in self.lazy
                else self.commands[name].get_short_help_str(100),
            )
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click does it; a wrong option is one line."""
        with _one_line_usage():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; an exception becomes one message and an exit code."""
        logs.tear_down()  # of an earlier command in this process
        try:
            with _one_line_warnings(), _one_line_usage():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            if logs.is_set_up():
                log.warning("interrupted")
            else:
                click.echo("Interrupted.", err=True)
            ctx.exit(130)
        except (ConfigError, InputError, ChangedError) as error:
            raise Refusal(str(error)) from error
        except StreamForestError as error:
            raise Failure(printable(str(error), _MAX_ERROR)) from error
        except BrokenPipeError:
            raise  # a reader such as `head` has closed the pipe: click exits quietly
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            remedy = _REMEDIES.get(error.errno or 0, "")
            raise Failure(f"{where}{error.strerror or error}{remedy}") from error
        except Exception as error:
            if os.environ.get(DEBUG_VARIABLE):
                raise
            message = printable(str(error), _MAX_ERROR)
            raise Failure(
                f"internal error, {type(error).__name__}: {message} "
                f"(a bug; set {DEBUG_VARIABLE}=1 for a traceback)"
            ) from error


_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""What newer versions of click raise to print the help."""


@contextmanager
def _one_line_usage() -> Iterator[None]:
    """A usage error is one line with the nearest right one, not click's three."""
    try:
        yield
    except click.UsageError as error:
        if isinstance(error, _HELP):
            raise
        raise Refusal(in_one_line(error)) from error


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show each of the package's own warnings once, on one line, without file name and source."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", StreamForestWarning)
        usual = warnings.showwarning
        shown: set[str] = set()

        def show(
            message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any
        ) -> None:
            if not issubclass(category, StreamForestWarning):
                usual(message, category, *args, **kwargs)
            elif str(message) not in shown:
                shown.add(str(message))
                if logs.is_set_up():
                    log.warning("%s", message)
                    return
                click.echo(f"Warning: {printable(str(message), _MAX_ERROR)}", err=True)

        warnings.showwarning = show
        yield


@click.group(
    cls=LazyGroup,
    lazy=SUBCOMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="streamforest")
def root() -> None:
    """Online random forests for labelled event streams that keep bringing new classes."""
