"""Dead letters: events that could not be taken, with the reason and where they came from.

The headers are those of Kafka Streams (KIP-1034), so that tools made for its dead letters read ours.
The original key, value and headers stand unchanged. No stack trace is sent: the reason and the
message say all there is, and a trace would tell strangers about the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamforest.io.log import Headers, OutputRecord, Partition

EXCEPTION = "__streams.errors.exception"
MESSAGE = "__streams.errors.message"
TOPIC = "__streams.errors.topic"
PARTITION = "__streams.errors.partition"
OFFSET = "__streams.errors.offset"
REASON = "__streamforest.errors.reason"
TRUNCATED = "__streamforest.errors.truncated"
"""Bytes of the original value, where that or the key was too large to be carried along."""

_OURS = frozenset((EXCEPTION, MESSAGE, TOPIC, PARTITION, OFFSET, REASON, TRUNCATED))
MAX_VALUE = 900_000
"""Bytes of a value that go along whole; what is larger is cut and stays readable at its source."""
MAX_KEY = 65_536
"""Bytes of a key that go along, to a prediction too: an event with a longer one is a dead letter."""
_KEPT = 65_536
_MAX_MESSAGE = 500
_MAX_HEADERS = 32_768

REASONS = (
    "undecodable",
    "invalid",
    "decoder",
    "too_large",
    "too_long",
    "too_deep",
    "too_many",
    "empty",
    "version",
    "feature",
    "label",
    "capacity",
)
"""Every value the reason can have: it is a metric's label too."""


def dead_letter(record: Any, partition: Partition, error: Exception, reason: str) -> OutputRecord:
    """The message that says why a record was not taken."""
    value = record.value
    text = str(error)[:_MAX_MESSAGE]
    headers: Headers = [
        (EXCEPTION, type(error).__name__.encode()),
        (MESSAGE, text.encode(errors="replace")),
        (TOPIC, partition[0].encode()),
        (PARTITION, str(partition[1]).encode()),
        (OFFSET, str(record.offset).encode()),
        (REASON, reason.encode()),
    ]
    key = record.key
    long_value, long_key = len(value or b"") > MAX_VALUE, len(key or b"") > MAX_KEY
    if long_value or long_key:
        headers.append((TRUNCATED, str(len(value or b"")).encode()))
    if long_value:
        value = value[:_KEPT]
    if long_key:
        key = key[:_KEPT]
    headers += passed_on(record.headers)
    return OutputRecord(value, key if value is not None or key is not None else b"", headers, 0)


def passed_on(headers: Any) -> Headers:
    """The record's own headers, as far as they can and should travel."""
    kept: Headers = []
    size = 0
    for name, value in headers or ():
        if not isinstance(value, bytes) or name in _OURS:
            continue
        size += len(name.encode()) + len(value)
        if size > _MAX_HEADERS:
            break
        kept.append((name, value))
    return kept


@dataclass(frozen=True)
class Letter:
    """A dead letter read back."""

    topic: str
    partition: int
    offset: int
    reason: str
    message: str
    truncated: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_letter(record: Any) -> Letter | None:
    """What a record of a dead-letter topic says; None if it is no dead letter."""
    said = dict(record.headers or ())
    try:
        return Letter(
            topic=said[TOPIC].decode(),
            partition=int(said[PARTITION]),
            offset=int(said[OFFSET]),
            reason=(said.get(REASON) or said.get(EXCEPTION) or b"").decode(),
            message=said.get(MESSAGE, b"").decode(errors="replace"),
            truncated=int(said[TRUNCATED]) if TRUNCATED in said else None,
            key=record.key,
            value=record.value,
            headers=passed_on(record.headers),
        )
    except (
        KeyError,
        ValueError,
        AttributeError,
        TypeError,
    ):  # a header's value may be nothing at all
        return None
