"""Dead letters: events that could not be processed, with the reason and their origin.

The headers are those of Kafka Streams (KIP-1034), so that tools for its dead letters can read ours.
The original key, value and headers are unchanged. No stack trace is sent: the reason and the message
are enough, and a trace would reveal details of the machine.
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
"""Bytes of the original value, if that or the key was too large to be sent along."""

_OURS = frozenset((EXCEPTION, MESSAGE, TOPIC, PARTITION, OFFSET, REASON, TRUNCATED))
MAX_VALUE = 900_000
"""Bytes of a value that are sent along; a larger one is truncated, and can be read at its source."""
MAX_KEY = 65_536
"""Bytes of a key that are sent along, to a prediction too: an event with a longer key is a dead letter."""
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
    "taxonomy",
    "capacity",
)
"""Every value that the reason can have: it is a metric's label too."""


def place_of(record: Any, partition: Partition) -> str:
    """Where a record is, for people: a row of a file, or an offset of a topic's partition."""
    if getattr(record, "is_row", False):
        return f"{partition[0]}, row {record.offset + 1}"
    return f"{partition[0]}-{partition[1]}@{record.offset}"


def dead_letter(record: Any, partition: Partition, error: Exception, reason: str) -> OutputRecord:
    """The message that says why a record was refused."""
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
    """The record's own headers, without those of a dead letter and up to a total size."""
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
    """A dead letter as read from its topic."""

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
    """The dead letter in a record; None if the record is something else."""
    headers = dict(record.headers or ())
    try:
        return Letter(
            topic=headers[TOPIC].decode(),
            partition=int(headers[PARTITION]),
            offset=int(headers[OFFSET]),
            reason=(headers.get(REASON) or headers.get(EXCEPTION) or b"").decode(),
            message=headers.get(MESSAGE, b"").decode(errors="replace"),
            truncated=int(headers[TRUNCATED]) if TRUNCATED in headers else None,
            key=record.key,
            value=record.value,
            headers=passed_on(record.headers),
        )
    except (KeyError, ValueError, AttributeError, TypeError):  # a header's value may be None
        return None
