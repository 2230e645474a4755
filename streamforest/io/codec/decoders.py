"""Decodes a record into its event, by the codec or by a function of the user's own.

`decoder = "module:function"` in `[events]` is for Avro, Protobuf or a schema registry's wire format. The
function gets a `Message` and returns the event, as a dict or an `Event`:

    def decode(message):
        order = parse(message.value)
        return {"x": {"amount": order.amount, "country": order.country}, "y": order.fraud}

With late labels (`[labels]`) a message may also be a label: then the dict has an `id` and a `y`, no `x`.

Its values are numbers (NumPy's and decimals too), text, or None; `x` may also be a list, an array, or raw
little-endian float32. The limits of any other event hold for it too.

The function must depend on the message alone: the same message gives the same event, in every process and for
ever. Recovery decodes messages again, and must get what the first run got. So it must not use a clock, random
numbers, or a service whose answer can change. If it raises an error, the message becomes a dead letter with
that as its reason; the consumer never stops. `decode.version = 2` on the function is written to the journal
beside its name: what one version decoded is never decoded again by another.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from streamforest.errors import EventError
from streamforest.io.codec.dead_letters import MAX_KEY, REASONS
from streamforest.io.codec.events import (
    BOUNDS,
    NAMES,
    VERSION,
    Bounds,
    Decoder,
    Event,
    FieldsDecoder,
    Format,
    Names,
    check_size,
    decoder,
    fields_decoder,
    has_type,
    numbers_type,
)
from streamforest.text import printable

_MAX_MESSAGE = 300  # characters of a function's own error message
_MAX_TYPED = 256  # columns of a type: it finds a name that is not the next one by looking at each


class Message(msgspec.Struct, frozen=True, gc=False):
    """What a decoder gets: the record as it is in the topic. `value` is never None."""

    value: bytes
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str


NumbersDecoder = Callable[[Any], Event | None]
"""Decodes a record whose features are numbers of known columns, and no others; None for any other record."""
NumbersCodec = Callable[[Sequence[Any], bool], NumbersDecoder | None]
"""From the columns, and whether records are flat, to the decoder of such records."""


@dataclass(frozen=True)
class RecordDecoder:
    """Turns a record of any log into its event or into its fields; raises only EventError."""

    event: Callable[[Any], Event] | None
    """A record whose features are in `x`, by the compiled codec; None where label or id are nested fields."""
    fields: Callable[[Any], dict[str, Any]]
    """Any record."""
    numbers: NumbersCodec | None = None
    """Makes a decoder for records of known columns; None where the value is not read by type."""


@dataclass(frozen=True)
class Function:
    """A user's decoder: its module and name, the version it declares, and the function."""

    spec: str
    version: str
    call: Callable[[Message], Any]

    @property
    def name(self) -> str:
        """Its name in the journal: what was decoded under another name is not decoded again by this one."""
        return f"{self.spec}@{self.version}" if self.version else self.spec


def by_value(
    decode: Decoder | None,
    fields: FieldsDecoder,
    id_name: str = NAMES[1],
    numbers: NumbersCodec | None = None,
) -> RecordDecoder:
    """The codec, which reads the value; the key only has to be short enough to be sent on.

    A CloudEvent in binary mode has its id, type and time in the headers.
    """

    def decode_fields(record: Any) -> dict[str, Any]:
        if record.key is not None:
            _check_key(record.key)
        found = fields(record.value)
        if record.headers:
            event = cloud_event(record.headers)
            if "ce_id" in event:
                found.setdefault(id_name, event.pop("ce_id"))
            found.update(event)
        return found

    if decode is None:
        return RecordDecoder(None, decode_fields)
    typed = decode

    def decode_event(record: Any) -> Event:
        if record.key is not None:
            _check_key(record.key)
        event = typed(record.value)
        if record.headers and event.id is None:
            event.id = cloud_event(record.headers).get("ce_id")
        return event

    return RecordDecoder(decode_event, decode_fields, numbers)


def numbers_codec(
    format: Format = "json", bounds: Bounds = BOUNDS, names: Names = NAMES
) -> NumbersCodec:
    """A codec for streams whose features are numbers: their columns become part of the type that is decoded.

    That takes a third of the time, since no dict is made. What such a decoder takes is the event that the
    other decoders make of the same record, with a tuple of the numbers in the order of the columns instead
    of a dict. Arrays stay lists.

    >>> from types import SimpleNamespace
    >>> decode = numbers_codec()(["a", "b"], False)
    >>> decode(SimpleNamespace(key=None, headers=(), value=b'{"y": "cat", "x": {"b": 2, "a": 1}}')).x
    (1.0, 2.0)
    >>> decode(SimpleNamespace(key=None, headers=(), value=b'{"x": {"b": null, "a": 1}}')) is None
    True
    """
    module = msgspec.json if format == "json" else msgspec.msgpack
    max_bytes = min(bounds.max_bytes, bounds.max_items)  # below it no items have to be counted

    def of_columns(columns: Sequence[Any], flat: bool) -> NumbersDecoder | None:
        width, is_array = len(columns), columns == list(range(len(columns)))
        typed = width <= _MAX_TYPED and all(type(name) is str for name in columns)
        if not typed and not (is_array and not flat):
            return None
        try:
            parse = module.Decoder(numbers_type(bounds, names, columns, flat)).decode
        except ValueError:  # a name that no type can have, with a quotation mark in it
            return None
        values_of = msgspec.structs.astuple

        def decode(record: Any) -> Event | None:
            value, headers = record.value, record.headers
            if not value or len(value) > max_bytes or (headers and cloud_event(headers)):
                return None
            if record.key is not None:
                _check_key(record.key)
            try:
                event = parse(value)
            except (ValueError, RecursionError):
                return None
            if flat:
                values = values_of(event)
                y, identity, coarse = values[width:]
                return Event(values[:width], y, identity, None, coarse)  # type: ignore[arg-type]
            if event.v != VERSION:
                return None
            if not is_array:
                event.x = values_of(event.x)
            return event  # type: ignore[no-any-return]

        return decode

    return of_columns


def cloud_event(headers: Any) -> dict[str, str]:
    """The id, the type and the time of a CloudEvent in binary mode; empty if the message is none.

    >>> cloud_event([("ce_specversion", b"1.0"), ("ce_id", b"e-1"), ("ce_type", b"order.paid")])
    {'ce_id': 'e-1', 'ce_type': 'order.paid'}
    """
    given = {name: value for name, value in headers if isinstance(value, bytes)}
    if "ce_specversion" not in given:
        return {}
    return {
        name: given[name].decode(errors="backslashreplace")
        for name in ("ce_id", "ce_type", "ce_time")
        if name in given
    }


def _check_key(key: bytes) -> None:
    if len(key) > MAX_KEY:
        raise EventError(
            f"invalid event: a key of {len(key):,} bytes, over {MAX_KEY:,}", "too_large"
        )


def by_function(
    function: Function, bounds: Bounds, topic: str, labels: bool = False, names: Names = NAMES
) -> RecordDecoder:
    """A user's function, with the same rules for its result as for a message that the codec reads.

    `topic` is that of records which do not say theirs.
    """
    call, spec = function.call, function.spec
    any_size = dataclasses.replace(bounds, max_bytes=sys.maxsize)
    unpack = decoder("msgpack", any_size, labels, names) if has_type(names) else None
    unpack_fields = fields_decoder("msgpack", any_size)
    kept = frozenset(("x", "ts", "v", *(name.split(".")[0] for name in names), *names))

    def packed(record: Any) -> bytes:
        value = record.value
        check_size(value, bounds)
        if record.key is not None:
            _check_key(record.key)
        message = Message(
            value, record.key, tuple(record.headers or ()), getattr(record, "topic", topic)
        )
        try:
            result = call(message)
        except EventError as error:
            reason = error.reason if error.reason in REASONS else "decoder"
            raise EventError(f"invalid event: {spec}: {_message(error)}", reason) from None
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            details = f"invalid event: {spec}: {type(error).__name__}: {_message(error)}"
            raise EventError(details, "decoder") from None
        return _packed(result, spec, kept)

    def decode_fields(record: Any) -> dict[str, Any]:
        return unpack_fields(packed(record))

    if unpack is None:
        return RecordDecoder(None, decode_fields)
    typed = unpack
    return RecordDecoder(lambda record: typed(packed(record)), decode_fields)


def _packed(result: Any, spec: str, kept: frozenset[str]) -> bytes:
    """What a function returned, as a message that the codec reads: so the same rules hold for it.

    Beside `x` only the fields that are `kept` count; a record without `x` is all features.
    """
    if isinstance(result, Event):
        result = msgspec.structs.asdict(result)
    if not isinstance(result, Mapping):
        kind = type(result).__name__
        raise EventError(
            f"invalid event: {spec} returned a {kind}, not a dict or an Event", "decoder"
        )
    try:
        known = None if "x" not in result else kept
        fields = {name: result[name] for name in result if known is None or name in known}
        if isinstance(fields.get("x"), Mapping):
            fields["x"] = dict(fields["x"])
        return _pack(fields)
    except UnicodeEncodeError:
        raise EventError(
            f"invalid event: {spec} returned text that is not Unicode", "invalid"
        ) from None
    except Exception as error:  # a mapping or an array of any class
        details = f"{type(error).__name__}: {_message(error)}"
        raise EventError(
            f"invalid event: what {spec} returned cannot be read: {details}", "decoder"
        ) from None


def _builtin(value: Any) -> Any:
    """A subclass of str as a str; an array or a number of NumPy's as Python's own."""
    if isinstance(value, str):
        return str.encode(value).decode()
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is neither a number nor text")


_pack = msgspec.msgpack.Encoder(enc_hook=_builtin, decimal_format="number").encode


def _message(error: BaseException) -> str:
    try:
        return printable(str(error), _MAX_MESSAGE)
    except Exception:  # an error that cannot even be printed
        return "(no message)"
