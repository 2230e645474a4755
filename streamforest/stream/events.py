"""Events as messages: what a producer sends, decoded and checked by a compiled codec.

JSON by default. Only `x` is required; it is an object of named features or an array of numbers:

    {"x": {"width": 3.5, "colour": "red"}, "y": "cat", "id": "e-17", "ts": 1700000000000}
    {"x": [0.1, -0.7, 0.33], "y": 4}

MessagePack has the same fields, and there a vector may also be raw little-endian float32 bytes, as
embeddings usually are. A field this version does not know is left alone, so producers can go ahead;
`v` is for the day the meaning of a field changes: a version unknown here is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from streamforest.errors import EventError

VERSION = 1
MAX_TEXT = 256
"""Characters a label, an id, a feature's name or a category may have."""

Format = Literal["json", "msgpack"]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Name = Annotated[str, Meta(max_length=MAX_TEXT, description="a feature's name")]
Value = float | bool | Text | None
Label = bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | Text | None
Vector = list[float]


class Event(msgspec.Struct, gc=False):
    """One event as it arrives. `coarse` is a label of a coarser kind, kept for models that use it."""

    x: dict[Name, Value] | Vector
    y: Label = None
    id: Text | int | None = None
    ts: int | float | Text | None = None
    coarse: Label = None
    v: int = VERSION


class PackedEvent(msgspec.Struct, gc=False):
    """An event in MessagePack, where a vector may be raw little-endian float32."""

    x: dict[Name, Value] | Vector | bytes
    y: Label = None
    id: Text | int | None = None
    ts: int | float | Text | None = None
    coarse: Label = None
    v: int = VERSION


Decoder = Callable[[bytes | None], Event]


def decoder(form: Format = "json", max_bytes: int = 1_048_576) -> Decoder:
    """A function from a message's bytes to its event; it raises only `EventError`.

    >>> decode = decoder()
    >>> decode(b'{"x": {"a": 1, "b": "red"}, "y": "cat"}').x
    {'a': 1.0, 'b': 'red'}
    >>> decode(b'{"y": "cat"}')
    Traceback (most recent call last):
    ...
    streamforest.errors.EventError: no event: Object missing required field `x`
    """
    parse: Callable[[bytes], Any]
    if form == "json":
        parse = msgspec.json.Decoder(Event).decode
    else:
        parse = msgspec.msgpack.Decoder(PackedEvent).decode

    def decode(value: bytes | None) -> Event:
        if value is None:
            raise EventError("no event: the message has no value (a tombstone)", "empty")
        if len(value) > max_bytes:
            raise EventError(
                f"no event: {len(value):,} bytes, over max_event_bytes={max_bytes:,}", "too_large"
            )
        try:
            event = parse(value)
        except msgspec.ValidationError as error:
            raise EventError(f"no event: {error}", "invalid") from None
        except (ValueError, RecursionError) as error:  # DecodeError is a ValueError
            raise EventError(f"no event: {error}", "undecodable") from None
        if event.v != VERSION:
            raise EventError(
                f"no event: envelope version {event.v}, this consumer reads {VERSION}", "version"
            )
        if type(event.x) is bytes:
            event.x = _vector(event.x)
        return event  # type: ignore[return-value]  # the two differ in what x may be

    return decode


def _vector(raw: bytes) -> Vector:
    """Raw float32 as numbers; each one is exactly the float64 of the same value."""
    if len(raw) % 4:
        raise EventError(f"no event: a raw vector of {len(raw)} bytes is no float32", "invalid")
    numbers: Vector = np.frombuffer(raw, "<f4").astype(np.float64).tolist()
    return numbers


def encode(event: dict[str, Any], form: Format = "json") -> bytes:
    """An event's message; what the replay and the tests send."""
    return msgspec.json.encode(event) if form == "json" else msgspec.msgpack.encode(event)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of an event."""
    schema = msgspec.json.schema(Event)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "streamforest event"
    schema["examples"] = [
        {"x": {"width": 3.5, "colour": "red"}, "y": "cat", "id": "e-17", "ts": 1700000000000},
        {"x": [0.1, -0.7, 0.33], "y": 4},
    ]
    return schema
