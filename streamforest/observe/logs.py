"""Logs: text on a terminal, one JSON object a line elsewhere. Never a payload, never a secret."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from streamforest.text import printable


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message; nothing else of the record leaves."""
        told: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        if record.exc_info and record.exc_info[0] is not None:
            told["error"] = record.exc_info[0].__name__
        return json.dumps(told)


class Lines(logging.Formatter):
    """A record as one line of text."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, message."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{clock} {record.levelname.lower():<7} {printable(record.getMessage())}"


def set_up(level: int = logging.INFO) -> None:
    """Send this package's logs to stderr, and of kafka-python only what went wrong.

    Its debug output holds payloads, so it is not let through at any level of ours.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines() if sys.stderr.isatty() else JsonLines())
    ours = logging.getLogger("streamforest")
    ours.handlers[:] = [handler]
    ours.setLevel(level)
    ours.propagate = False
    theirs = logging.getLogger("kafka")
    theirs.handlers[:] = [handler]
    theirs.setLevel(logging.CRITICAL)
    theirs.propagate = False
