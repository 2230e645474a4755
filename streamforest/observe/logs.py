"""Logs: one stream of records on stderr, as JSON or as text. Never a payload, never a secret.

Everything that a command says while it works goes through here, so that what reads the stream finds one
record on each line, with a terminal and without. Only progress, which overwrites itself, and the report on
stdout are not records.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from streamforest.text import printable

Format = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")
_OURS, _THEIRS = "streamforest", "kafka"


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message; nothing else of the record leaves."""
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = record.exc_info[0].__name__
        return json.dumps(fields)


class Lines(logging.Formatter):
    """A record as one line of text."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, message."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        message = printable(record.getMessage())
        return f"{clock} {record.levelname.lower():<7} {message}"


class _Stderr(logging.Handler):
    """Writes to whatever stderr is now, or above the progress that is being shown."""

    def __init__(self) -> None:
        super().__init__()
        self.write: Callable[[str], object] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if self.write is not None:
                self.write(line)
            else:
                sys.stderr.write(line + "\n")
                sys.stderr.flush()
        except Exception:  # a log that cannot be written stops nothing
            self.handleError(record)


def set_up(level: str = "info", format: Format | None = None) -> None:
    """Send this package's logs to stderr, and of kafka-python only what went wrong.

    Without a format it is text on a terminal and JSON elsewhere. The debug output of kafka-python holds
    payloads, so it is not let through at any level of ours.
    """
    handler = _Stderr()
    chosen = format or ("text" if sys.stderr.isatty() else "json")
    handler.setFormatter(Lines() if chosen == "text" else JsonLines())
    for name, threshold in ((_OURS, getattr(logging, level.upper())), (_THEIRS, logging.CRITICAL)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(threshold)
        logger.propagate = False


def tear_down() -> None:
    """Undo `set_up`: what is said from here on is not a record."""
    for name in (_OURS, _THEIRS):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def is_set_up() -> bool:
    """Whether records go to stderr."""
    return _handler() is not None


@contextmanager
def above(write: Callable[[str], object]) -> Iterator[None]:
    """Write records with this function for a while: it keeps them apart from the progress shown."""
    handler = _handler()
    if handler is None:
        yield
        return
    handler.write = write
    try:
        yield
    finally:
        handler.write = None


def _handler() -> _Stderr | None:
    handlers = logging.getLogger(_OURS).handlers
    return next((handler for handler in handlers if isinstance(handler, _Stderr)), None)
