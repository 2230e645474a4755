"""The `streamforest` command, also as `python -m streamforest`.

Importing the packages behind a command takes a second. Ctrl-C within it ends the process in one line: nothing
has begun that would have to be cleaned up, and a traceback through an import helps nobody.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from contextlib import suppress
from types import FrameType


def interrupted(number: int, frame: FrameType | None) -> None:
    """The handler of SIGINT until a command begins its work."""
    sys.stderr.write("Interrupted.\n")
    sys.stderr.flush()
    os._exit(130)


def main() -> None:
    """The console script."""
    with suppress(RuntimeError, ValueError, OSError):  # a daemon may have no stderr
        faulthandler.enable()  # a crash in compiled code names the line that called it
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
    from streamforest.cli import root

    root(prog_name="streamforest")


if __name__ == "__main__":
    from streamforest.__main__ import main as of_the_package  # the handler that the commands know

    of_the_package()
