"""The root command: quick to answer, and the one place where errors become exit codes."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner, Result

from streamforest import __version__
from streamforest.cli import DEBUG_VARIABLE, SUBCOMMANDS, LazyGroup, root
from streamforest.errors import (
    CapacityError,
    ChangedError,
    ConfigError,
    ParameterError,
    SnapshotError,
    StreamForestError,
)


@pytest.mark.parametrize("argument", ["--help", "-h", "--version"])
def test_help_and_version_load_neither_numba_nor_river(argument: str) -> None:
    code = (
        "import sys\n"
        "from streamforest.__main__ import main\n"
        "sys.argv = ['streamforest', sys.argv[1]]\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'numba', 'river', 'pandas', 'numpy', 'sklearn', 'rich'} & set(sys.modules)\n"
        "    print(sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, argument], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
    if argument == "--version":
        assert done.stdout == f"streamforest, version {__version__}\n"
    else:
        for name, (_, about) in SUBCOMMANDS.items():
            assert name in done.stdout
            assert about in done.stdout


def test_a_subcommand_is_imported_when_it_is_called() -> None:
    done = CliRunner().invoke(root, ["run", "--help"])
    assert done.exit_code == 0
    assert "--max-events" in done.stdout
    assert "--fresh" in done.stdout


def outcome(error: BaseException) -> Result:
    """What the terminal shows when a command raises `error`."""

    @click.group(cls=LazyGroup)
    def group() -> None:
        pass

    @group.command()
    def fail() -> None:
        raise error

    return CliRunner().invoke(group, ["fail"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("run.batch_size = 0: expected more"), 2),
        (ChangedError("model.seed is 5 and was 0"), 2),
        (ParameterError("n_trees=0: use more"), 2),
        (CapacityError("max_classes"), 2),
        (SnapshotError("damaged"), 1),
        (StreamForestError("event 3"), 1),
        (PermissionError(13, "Permission denied", "/x"), 1),
    ],
)
def test_errors_are_one_line_and_an_exit_code(error: Exception, code: int) -> None:
    done = outcome(error)
    assert done.exit_code == code
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_an_interrupt_is_130_and_no_traceback() -> None:
    done = outcome(KeyboardInterrupt())
    assert (done.exit_code, done.stderr) == (130, "Interrupted.\n")


def test_a_bug_is_one_line_and_a_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    done = outcome(ZeroDivisionError("oh"))
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: internal error, ZeroDivisionError: oh (a bug; set ")
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    assert isinstance(outcome(ZeroDivisionError("oh")).exception, ZeroDivisionError)
