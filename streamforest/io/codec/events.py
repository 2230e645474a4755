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
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from streamforest.errors import EventError
from streamforest.io.codec.nesting import (
    json_holds_more,
    json_is_deeper,
    msgpack_holds_more,
    msgpack_is_deeper,
)

VERSION = 1

Format = Literal["json", "msgpack"]


@dataclass(frozen=True)
class Bounds:
    """How much one message may be. What goes beyond is no event, and says so."""

    max_bytes: int = 1 << 20
    """Of the whole message."""
    max_text: int = 256
    """Characters of a label, an id, a feature's name or a category."""
    max_depth: int = 32
    """Levels of arrays and objects, also in fields that an event does not have."""
    max_items: int = 1 << 17
    """Values in all of its arrays and objects, and names in objects; in unknown fields too."""

    def rules(self) -> str:
        """In a few words, for the journal: events are judged by these."""
        return (
            f"max_bytes={self.max_bytes} max_text={self.max_text} max_depth={self.max_depth} "
            f"max_items={self.max_items}"
        )


BOUNDS = Bounds()
Text = Annotated[str, Meta(max_length=BOUNDS.max_text)]
Name = Annotated[str, Meta(max_length=BOUNDS.max_text, description="a feature's name")]
Value = float | bool | Text | None
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[float, Meta(ge=-(2.0**63), le=2.0**63)]  # which NaN is not
Label = bool | Whole | float | Text | None
Vector = list[float]


class Event(msgspec.Struct, gc=False):
    """One event as it arrives. `coarse` is a label of a coarser kind, kept for models that use it."""

    x: dict[Name, Value] | Vector
    y: Label = None
    id: Text | Whole | None = None
    ts: Whole | Time | Text | None = None
    coarse: Label = None
    v: Whole = VERSION


Decoder = Callable[[bytes | None], Event]


def event_type(
    bounds: Bounds, raw: bool = False, strict: bool = False, labels: bool = False
) -> Any:
    """The type of an event within bounds: with raw bytes as a vector, with no unknown fields, or with
    labels alone among them, whose `x` is then UNSET.
    """
    text = Annotated[str, Meta(max_length=bounds.max_text)]
    label = bool | Whole | float | text | None
    x: Any = dict[text, float | bool | text | None] | Vector
    x = x | bytes if raw else x
    return msgspec.defstruct(
        "Event",
        [
            ("x", x | msgspec.UnsetType, msgspec.UNSET) if labels else ("x", x),
            ("y", label, None),
            ("id", text | Whole | None, None),
            ("ts", Whole | Time | text | None, None),
            ("coarse", label, None),
            ("v", Whole, VERSION),
        ],
        gc=False,
        forbid_unknown_fields=strict,
    )


def decoder(form: Format = "json", bounds: Bounds = BOUNDS, labels: bool = False) -> Decoder:
    """A function from a message's bytes to its event; it raises only `EventError`.

    With `labels` a message without `x` is the label of an event that has come, or is to come, by itself:
    `{"id": "e-17", "y": "cat"}`.

    >>> decode = decoder()
    >>> decode(b'{"x": {"a": 1, "b": "red"}, "y": "cat"}').x
    {'a': 1.0, 'b': 'red'}
    >>> decode(b'{"y": "cat"}')
    Traceback (most recent call last):
    ...
    streamforest.errors.EventError: no event: Object missing required field `x`
    """
    parse = _parser(form, bounds, labels)
    most = bounds.max_bytes

    def decode(value: bytes | None) -> Event:
        if value is None or len(value) > most:
            check_size(value, bounds)
        try:
            event = parse(value)
        except msgspec.ValidationError as error:
            raise invalid(error) from None
        except (ValueError, RecursionError) as error:  # DecodeError is a ValueError
            if isinstance(error, EventError):
                raise
            raise EventError(f"no event: {error}", "undecodable") from None
        if event.v != VERSION or type(event.x) is bytes or event.x is msgspec.UNSET:
            return checked(event, bounds)
        return event  # type: ignore[no-any-return]

    return decode


def check_size(value: bytes | None, bounds: Bounds) -> None:
    """EventError for a message without a value, and for one that is too large."""
    if value is None:
        raise EventError("no event: the message has no value (a tombstone)", "empty")
    if len(value) > bounds.max_bytes:
        raise EventError(
            f"no event: {len(value):,} bytes, over events.max_bytes={bounds.max_bytes:,}",
            "too_large",
        )


def invalid(error: msgspec.ValidationError) -> EventError:
    """What the codec found wrong with the fields of a message."""
    text = str(error)
    if "of length <=" in text:
        return EventError(f"no event: {text} (events.max_text_length)", "too_long")
    return EventError(f"no event: {text}", "invalid")


def checked(event: Any, bounds: Bounds) -> Event:
    """A decoded event, of a version known here, its vector as numbers."""
    if event.v != VERSION:
        raise EventError(
            f"no event: envelope version {event.v}, this consumer reads {VERSION}", "version"
        )
    if event.x is msgspec.UNSET and (event.y is None or event.id is None):
        raise EventError(
            "no event: Object missing required field `x`; nor a label, which has an id and a y",
            "invalid",
        )
    if type(event.x) is bytes:
        if len(event.x) > 4 * bounds.max_items:
            raise _too_many(bounds.max_items)
        event.x = _vector(event.x)
    found: Event = event
    return found


def _parser(form: Format, bounds: Bounds, labels: bool) -> Callable[[Any], Any]:
    """Bytes to an event, with an eye on how deep they go and how many items they hold.

    An event without unknown fields is as deep as its type, so a parser that refuses others comes
    first; only what it refuses is measured. Once a stream is known to have unknown fields, its
    messages are measured at once: the outcome is the same, and one attempt is spared. No message has
    more items than bytes, so only large ones are counted.
    """
    module = msgspec.json if form == "json" else msgspec.msgpack
    is_deeper = json_is_deeper if form == "json" else _msgpack_is_deeper
    holds_more = json_holds_more if form == "json" else msgpack_holds_more
    raw = form != "json"
    plain = module.Decoder(event_type(bounds, raw, strict=True, labels=labels)).decode
    usual = module.Decoder(event_type(bounds, raw, labels=labels)).decode
    most, most_items, has_more = bounds.max_depth, bounds.max_items, False

    def parse(value: bytes) -> Any:
        nonlocal has_more
        if len(value) > most_items and holds_more(value, most_items):
            raise _too_many(most_items)
        if not has_more:
            try:
                return plain(value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                # also of an unknown field whose name is no UTF-8: the usual way passes over that
                unknown = "unknown field" in str(error)
        if is_deeper(value, most):
            raise _too_deep(most)
        event = usual(value)
        has_more = has_more or unknown
        return event

    return parse


def _msgpack_is_deeper(value: bytes, most: int) -> bool:
    return msgpack_is_deeper(value, most, Event.__struct_fields__)


def _too_deep(most: int) -> EventError:
    return EventError(f"no event: nested in more than events.max_depth={most} levels", "too_deep")


def _too_many(most: int) -> EventError:
    return EventError(f"no event: more than events.max_items={most:,} items", "too_many")


def _vector(raw: bytes) -> Vector:
    """Raw float32 as numbers; each one is exactly the float64 of the same value."""
    if len(raw) % 4:
        raise EventError(f"no event: a raw vector of {len(raw)} bytes is no float32", "invalid")
    numbers: Vector = np.frombuffer(raw, "<f4").astype(np.float64).tolist()
    return numbers


def encode(event: dict[str, Any], form: Format = "json") -> bytes:
    """An event's message; what the replay and the tests send. What has no form there goes as text."""
    encoder = msgspec.json.encode if form == "json" else msgspec.msgpack.encode
    return encoder(event, enc_hook=str)


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
