"""Messages: events as a producer sends them, decoded and checked, and the predictions of them.

JSON by default. Only `x` is required; it is an object of named features or an array of numbers:

    {"x": {"width": 3.5, "colour": "red"}, "y": "cat", "id": "e-17", "ts": 1700000000000}
    {"x": [0.1, -0.7, 0.33], "y": 4}

MessagePack has the same fields, and there a vector may also be raw little-endian float32 bytes, as
embeddings usually are. Unknown fields are ignored, so producers can add some before consumers know them.
`v` is for the day on which the meaning of a field changes: an unknown version is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """The limits of one message. One that exceeds a limit is an invalid event; its error names the limit."""

    max_bytes: int = 1 << 20
    """Of the whole message."""
    max_text_length: int = 256
    """Characters of a label, an id, a feature's name or a category."""
    max_depth: int = 32
    """Levels of nested arrays and objects, in unknown fields too."""
    max_items: int = 1 << 17
    """Values in all its arrays and objects, and names in objects; in unknown fields too."""

    def rules(self) -> str:
        """The limits as text for the journal: recovery must apply the same ones."""
        return (
            f"max_bytes={self.max_bytes} max_text_length={self.max_text_length} "
            f"max_depth={self.max_depth} max_items={self.max_items}"
        )


BOUNDS = Bounds()
Text = Annotated[str, Meta(max_length=BOUNDS.max_text_length)]
Name = Annotated[str, Meta(max_length=BOUNDS.max_text_length, description="a feature's name")]
Value = float | bool | Text | None
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[float, Meta(ge=-(2.0**63), le=2.0**63)]  # which NaN is not
Label = bool | Whole | float | Text | None
Vector = list[float]


class Event(msgspec.Struct, gc=False):
    """One event as it arrives. `coarse` is a label of a coarser kind: the category of its class."""

    x: dict[Name, Value] | Vector
    y: Label = None
    id: Text | Whole | None = None
    ts: Whole | Time | Text | None = None
    coarse: Label = None
    v: Whole = VERSION


def is_label(event: Event) -> bool:
    """Whether a message is the label of an event that comes by itself."""
    return event.x is msgspec.UNSET  # type: ignore[comparison-overlap]


Decoder = Callable[[bytes | None], Event]
FieldsDecoder = Callable[[bytes | None], dict[str, Any]]
Names = tuple[str, str, str]
"""How label, id and coarse label are called in a message."""
NAMES: Names = ("y", "id", "coarse")


def has_type(names: Names) -> bool:
    """Whether messages with these names can be decoded by type: nested fields and headers cannot.

    >>> has_type(("label", "id", "coarse")), has_type(("after.label", "id", "coarse"))
    (True, False)
    """
    free = {*names, "x", "ts", "v"}
    return len(free) == 6 and not any("." in name or name.startswith("ce_") for name in names)


def event_type(
    bounds: Bounds,
    raw: bool = False,
    strict: bool = False,
    labels: bool = False,
    names: Names = NAMES,
    features: Any = None,
) -> Any:
    """The type of an event within these bounds.

    With `raw` a vector may be bytes; with `strict` unknown fields are refused; with `labels` a message
    may be a label alone, whose `x` is UNSET. `features` is the type of `x`, if it is a narrower one.
    """
    text = Annotated[str, Meta(max_length=bounds.max_text_length)]
    x: Any = features or dict[text, float | bool | text | None] | Vector
    x = x | bytes if raw else x
    y, identity, coarse = _label_fields(bounds)
    return msgspec.defstruct(
        "Event",
        [
            ("x", x | msgspec.UnsetType, msgspec.UNSET) if labels else ("x", x),
            y,
            identity,
            ("ts", Whole | Time | text | None, None),
            coarse,
            ("v", Whole, VERSION),
        ],
        gc=False,
        forbid_unknown_fields=strict,
        rename=dict(zip(NAMES, names)),
    )


def _label_fields(bounds: Bounds) -> list[tuple[str, Any, None]]:
    """Label, id and coarse label as fields of a type."""
    text = Annotated[str, Meta(max_length=bounds.max_text_length)]
    label = bool | Whole | float | text | None
    return [("y", label, None), ("id", text | Whole | None, None), ("coarse", label, None)]


def numbers_type(bounds: Bounds, names: Names, columns: Sequence[Any], flat: bool) -> Any:
    """The type of an event whose features are numbers of these columns, and no others.

    Columns are names, or all the places of an array. Of a flat record label, id and coarse label are the
    last fields, after the columns.
    """
    width = len(columns)
    if columns[0] == 0 and not flat:
        vector = Annotated[Vector, Meta(min_length=width, max_length=width)]
        return event_type(bounds, strict=True, names=names, features=vector)
    named = {f"c{number}": name for number, name in enumerate(columns)}
    fields: list[Any] = [(field, float) for field in named]
    if flat:
        fields += _label_fields(bounds)
        named |= dict(zip(NAMES, names))
    x = msgspec.defstruct("Numbers", fields, rename=named, gc=False, forbid_unknown_fields=True)
    return x if flat else event_type(bounds, strict=True, names=names, features=x)


def decoder(
    format: Format = "json", bounds: Bounds = BOUNDS, labels: bool = False, names: Names = NAMES
) -> Decoder:
    """A function that turns a message's bytes into its event; it raises only `EventError`.

    With `labels` a message without `x` is the label of an event that arrives separately, earlier or
    later: `{"id": "e-17", "y": "cat"}`.

    >>> decode = decoder()
    >>> decode(b'{"x": {"a": 1, "b": "red"}, "y": "cat"}').x
    {'a': 1.0, 'b': 'red'}
    >>> decode(b'{"y": "cat"}')
    Traceback (most recent call last):
    ...
    streamforest.errors.EventError: invalid event: Object missing required field `x`
    """
    parse = _parser(format, bounds, labels, names)
    max_bytes = bounds.max_bytes

    def decode(value: bytes | None) -> Event:
        if not value or len(value) > max_bytes:
            check_size(value, bounds)
        try:
            event = parse(value)
        except msgspec.ValidationError as error:
            raise invalid(error) from None
        except (ValueError, RecursionError) as error:  # DecodeError is a ValueError
            if isinstance(error, EventError):
                raise
            raise EventError(f"invalid event: {error}", "undecodable") from None
        if event.v != VERSION or type(event.x) is bytes or event.x is msgspec.UNSET:
            return checked(event, bounds)
        return event  # type: ignore[no-any-return]

    return decode


def check_size(value: bytes | None, bounds: Bounds) -> None:
    """EventError if a message has no value, or is too large."""
    if value is None:
        raise EventError("invalid event: the message has no value (a tombstone)", "empty")
    if not value:
        raise EventError("invalid event: the message is empty", "empty")
    if len(value) > bounds.max_bytes:
        raise EventError(
            f"invalid event: {len(value):,} bytes, over events.max_bytes={bounds.max_bytes:,}",
            "too_large",
        )


def invalid(error: msgspec.ValidationError) -> EventError:
    """The error for a message in whose fields the codec found something wrong."""
    text = str(error)
    if "of length <=" in text:
        return EventError(f"invalid event: {text} (events.max_text_length)", "too_long")
    return EventError(f"invalid event: {text}", "invalid")


def checked(event: Any, bounds: Bounds) -> Event:
    """Check the version of a decoded event, and turn a raw vector into numbers."""
    if event.v != VERSION:
        raise EventError(
            f"invalid event: envelope version {event.v}, this consumer reads {VERSION}", "version"
        )
    if event.x is msgspec.UNSET and (
        event.id is None or (event.y is None and event.coarse is None)
    ):
        raise EventError(
            "invalid event: Object missing required field `x`; nor is it a label, which has id and y",
            "invalid",
        )
    if type(event.x) is bytes:
        if len(event.x) > 4 * bounds.max_items:
            raise _too_many(bounds.max_items)
        event.x = _vector(event.x)
    result: Event = event
    return result


def _parser(
    format: Format, bounds: Bounds, labels: bool, names: Names = NAMES
) -> Callable[[Any], Any]:
    """A function that parses an event within limits of nesting and of items.

    An event without unknown fields cannot be deeper than its type. So a parser that refuses unknown fields
    comes first, and only the depth of what it refuses is measured. Once a stream has had unknown fields, its
    messages are measured at once: the result is the same, and one attempt is saved. No message has
    more items than bytes, so items are counted only in large messages.
    """
    module = msgspec.json if format == "json" else msgspec.msgpack
    known = ("x", "ts", "v", *names)

    def is_deeper(value: bytes, max_depth: int) -> bool:
        if format == "json":
            return json_is_deeper(value, max_depth)
        return msgpack_is_deeper(value, max_depth, known)

    holds_more = json_holds_more if format == "json" else msgpack_holds_more
    raw = format != "json"
    strict = module.Decoder(event_type(bounds, raw, True, labels, names)).decode
    lenient = module.Decoder(event_type(bounds, raw, False, labels, names)).decode
    max_depth, max_items, has_unknown = bounds.max_depth, bounds.max_items, False

    def parse(value: bytes) -> Any:
        nonlocal has_unknown
        if len(value) > max_items and holds_more(value, max_items):
            raise _too_many(max_items)
        if not has_unknown:
            try:
                return strict(value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                # also for an unknown field whose name is not UTF-8, which `lenient` skips
                unknown = "unknown field" in str(error)
        if is_deeper(value, max_depth):
            raise _too_deep(max_depth)
        event = lenient(value)
        has_unknown = has_unknown or unknown
        return event

    return parse


def fields_decoder(format: Format = "json", bounds: Bounds = BOUNDS) -> FieldsDecoder:
    """A function that turns the bytes of any message into its fields; it raises only `EventError`.

    >>> fields_decoder()(b'{"amount": 3, "colour": {"name": "red"}}')
    {'amount': 3, 'colour': {'name': 'red'}}
    """
    module = msgspec.json if format == "json" else msgspec.msgpack
    is_deeper = json_is_deeper if format == "json" else msgpack_is_deeper
    holds_more = json_holds_more if format == "json" else msgpack_holds_more
    parse: Callable[[bytes], Any] = module.Decoder(dict[str, Any]).decode
    max_bytes, max_depth, max_items = bounds.max_bytes, bounds.max_depth, bounds.max_items

    def decode(value: bytes | None) -> dict[str, Any]:
        if not value or len(value) > max_bytes:
            check_size(value, bounds)
        assert value is not None
        if len(value) > max_items and holds_more(value, max_items):
            raise _too_many(max_items)
        if is_deeper(value, max_depth):
            raise _too_deep(max_depth)
        try:
            return parse(value)  # type: ignore[no-any-return]
        except msgspec.ValidationError as error:
            raise invalid(error) from None
        except (ValueError, RecursionError) as error:
            raise EventError(f"invalid event: {error}", "undecodable") from None

    return decode


def _too_deep(max_depth: int) -> EventError:
    return EventError(
        f"invalid event: nested in more than events.max_depth={max_depth} levels", "too_deep"
    )


def _too_many(max_items: int) -> EventError:
    return EventError(f"invalid event: more than events.max_items={max_items:,} items", "too_many")


def _vector(raw: bytes) -> Vector:
    """Raw float32 as numbers; each becomes the float64 of exactly the same value."""
    if len(raw) % 4:
        raise EventError(
            f"invalid event: a raw vector of {len(raw)} bytes is not float32", "invalid"
        )
    numbers: Vector = np.frombuffer(raw, "<f4").astype(np.float64).tolist()
    return numbers


def encode(event: dict[str, Any], format: Format = "json") -> bytes:
    """An event as a message, as replay and tests send it. A value without a JSON type is sent as text."""
    encoder = msgspec.json.encode if format == "json" else msgspec.msgpack.encode
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
    can tell. A model that knows categories also says `coarse`, the likeliest one, with its probability, and
    `novel_in`, the category that the event most likely belongs to if its class is unknown.

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
    coarse: Any = None
    coarse_probability: float | None = None
    coarse_truth: Any = None
    novel_in: Any = None


encode_prediction: Callable[[Prediction], bytes] = msgspec.json.Encoder().encode
"""The message of one prediction."""


def pack_predictions(encoded: Sequence[bytes]) -> bytes:
    """Several predictions as one message: a JSON array."""
    return b"[" + b",".join(encoded) + b"]"
