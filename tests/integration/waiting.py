"""Waiting for what a test relies on, never for a length of time; and asking a server over HTTP."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable


def until(condition: Callable[[], bool], timeout: float = 120.0) -> None:
    """Wait until a condition holds; AssertionError if it takes too long."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s"
        time.sleep(0.02)


def get(url: str) -> tuple[int, str]:
    """Status and body of an answer; (0, "") where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.HTTPException):  # it may die in the middle of its answer
        return 0, ""
