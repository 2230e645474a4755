"""Values of a label store in a snapshot, checked: a file may have been tampered with."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from streamforest.jsonable import rows, scalar, time_of


def index_of(guess: Any) -> int:
    """The place of a label in the list of those that were said."""
    if type(guess) is not int or guess < 0:
        raise ValueError(f"a guess with the number {guess!r}")
    return guess


def since_of(since: Any) -> int | None:
    """The stream time since which something waits, if that is known."""
    return None if since is None else time_of(since, "since")


def new_id(identity: Any, kept: dict[Any, Any]) -> Any:
    """An id as an event may have one, and no second time: its bytes would be counted twice."""
    if scalar(identity, "an id") in kept:
        raise ValueError(f"id {identity!r:.60} is listed twice")
    return identity


def said_of(guess: Any) -> Any:
    """A predicted label, or None."""
    return None if guess is None else scalar(guess, "a prediction")


def packed_of(text: Any) -> bytes:
    """Features as an event may have them, packed."""
    packed = base64.b64decode(text, validate=True)
    found = msgspec.msgpack.decode(packed)
    values = found.values() if isinstance(found, dict) else rows(found, "features")
    for value in values:
        if not (value is None or isinstance(value, str | int | float)):
            raise ValueError(f"a feature is a {type(value).__name__}")
    return packed
