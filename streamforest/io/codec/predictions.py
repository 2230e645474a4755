"""Predictions as messages: what the model said of one event before it learned from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

MAX_PREDICTION = 800_000
"""Bytes; a topic takes about a million by default, and key and headers are sent along."""


class Prediction(msgspec.Struct, omit_defaults=True, gc=False):
    """One prediction.

    `label` is None if the model knew no class yet, `truth` if the event had no label; `new` says that the
    model had never learned the true label. `event` counts all events that the pipeline has read,
    `learned` those from which the model had learned before this one. `top` holds only its first
    entry if long labels would make the message too large for its topic. `commit` is the number of the
    commit that published it; predictions in files have none, since it depends on when a run was
    stopped. `novelty` says how unlike everything known the event was (usually about 1), if the model
    can tell.

    >>> msgspec.json.encode(Prediction(7, "cat", 0.75, "dog", [("cat", 0.75)], "pets", 0, 7, 6))
    b'{"event":7,"label":"cat","probability":0.75,"truth":"dog","top":[["cat",0.75]],"topic":"pets","partition":0,"offset":7,"learned":6}'
    """

    event: int
    label: Any
    probability: float
    truth: Any
    top: list[tuple[Any, float]]
    topic: str
    partition: int
    offset: int
    learned: int
    new: bool = False
    id: Any = None
    commit: int | None = None
    novelty: float | None = None


_encoder = msgspec.json.Encoder()


def encode(prediction: Prediction) -> bytes:
    """The message of one prediction."""
    return _encoder.encode(prediction)


def encode_pack(encoded: Sequence[bytes]) -> bytes:
    """Several predictions as one message: a JSON array."""
    return b"[" + b",".join(encoded) + b"]"
