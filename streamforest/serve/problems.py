"""What a server says when it does not answer as asked: a status, a short reason and one line for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import msgspec

from streamforest.text import printable

_MAX_MESSAGE = 1_000  # characters: it may quote what a stranger has sent


class Told(msgspec.Struct, frozen=True):
    """`reason` is one of a few words, for programs; `message` names field, value and remedy, for people."""

    reason: str
    message: str


class ProblemBody(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success, and the place of an event that is none."""

    error: Told


class Problem(Exception):
    """A request that is not answered as asked."""

    def __init__(
        self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason
        self.headers = dict(headers or {})

    @property
    def body(self) -> ProblemBody:
        """What the client gets."""
        return ProblemBody(Told(self.reason, printable(str(self), _MAX_MESSAGE)))


def unavailable(reason: str, message: str, seconds: int = 1) -> Problem:
    """Not now: another replica may answer, or this one a little later."""
    return Problem(503, reason, message, {"retry-after": str(seconds)})


def refuse(reason: str, message: str) -> NoReturn:
    """A request that is wrong in itself."""
    raise Problem(400, reason, message)
