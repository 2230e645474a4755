"""Predictions as messages: what the model said of one event before it learned from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

MAX_PREDICTION = 800_000
"""Bytes; a topic takes about a million by default, and key and headers travel along."""


class Prediction(msgspec.Struct, omit_defaults=True, gc=False):
    """One prediction.

    `label` is None while the model knew no class, `truth` where the event had no label; `new` says
    that the true label was one the model had never learned. `event` counts all events the pipeline
    has read, `learned` those the model had learned from before this one. `top` holds only the first
    where long labels would make a message too large for its topic. `commit` is the commit that
    made it true; a file has none, since it depends on when a run was stopped. `novelty` says how
    unlike everything known the event was, about 1 being usual, where the model can tell.

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
    """Many predictions as one message: a JSON array of them."""
    return b"[" + b",".join(encoded) + b"]"
