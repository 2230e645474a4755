"""From a record to its event: by the codec, or by a function of the user's own.

`decoder = "module:function"` in `[events]` is for Avro, Protobuf, a schema registry's wire format. The
function gets a `Message` and gives the event, as a dict or an `Event`:

    def decode(message):
        order = parse(message.value)
        return {"x": {"amount": order.amount, "country": order.country}, "y": order.fraud}

With late labels (`[labels]`) a message may also be a label: then the dict has an `id` and a `y`, no `x`.

Its values are numbers (NumPy's and decimals too), text, or None; `x` may also be a list, an array, or raw
little-endian float32. What it gives is held to the limits of any other event.

It must be a function of the message alone: the same message, the same event, in every process and for
ever. Recovery decodes messages once more, and what comes out then must be what came out before; so no
clock, no random draw, no lookup in a service whose answer can change. What it raises makes the message a
dead letter with that as its reason, and never stops the consumer. `decode.version = 2` on the function
goes to the journal beside its name: events that were decoded by one version are not decoded again by
another.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from streamforest.errors import EventError
from streamforest.io.codec.dead_letters import MAX_KEY, REASONS
from streamforest.io.codec.events import Bounds, Decoder, Event, check_size, decoder
from streamforest.text import printable

_MOST = 300  # characters of what a function says when it fails


class Message(msgspec.Struct, frozen=True, gc=False):
    """What a decoder gets: the record as it stands in the topic. `value` is never None."""

    value: bytes
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str


RecordDecoder = Callable[[Any], Event]
"""From a record of any log to its event; it raises only EventError."""


@dataclass(frozen=True)
class Function:
    """A decoder of the user's: where it is, which version it says it is, and itself."""

    spec: str
    version: str
    call: Callable[[Message], Any]

    @property
    def name(self) -> str:
        """For the journal: events decoded by another name are not decoded again by this one."""
        return f"{self.spec}@{self.version}" if self.version else self.spec


def by_value(decode: Decoder) -> RecordDecoder:
    """The codec, which looks at the value; a key has only to be short enough to travel along."""

    def decode_record(record: Any) -> Event:
        if record.key is not None:
            _check_key(record.key)
        return decode(record.value)

    return decode_record


def _check_key(key: bytes) -> None:
    if len(key) > MAX_KEY:
        raise EventError(f"no event: a key of {len(key):,} bytes, over {MAX_KEY:,}", "too_large")


def by_function(
    function: Function, bounds: Bounds, topic: str, labels: bool = False
) -> RecordDecoder:
    """A user's function, with its result held to the same rules as a message of the codec's.

    `topic` is for records that do not know theirs.
    """
    call, spec = function.call, function.spec
    unpack = decoder("msgpack", dataclasses.replace(bounds, max_bytes=sys.maxsize), labels)

    def decode(record: Any) -> Event:
        value = record.value
        check_size(value, bounds)
        if record.key is not None:
            _check_key(record.key)
        message = Message(
            value, record.key, tuple(record.headers or ()), getattr(record, "topic", topic)
        )
        try:
            found = call(message)
        except EventError as error:
            reason = error.reason if error.reason in REASONS else "decoder"
            raise EventError(f"no event: {spec}: {_said(error)}", reason) from None
        except (Exception, SystemExit) as error:  # whatever a stranger's function raises
            told = f"no event: {spec}: {type(error).__name__}: {_said(error)}"
            raise EventError(told, "decoder") from None
        return unpack(_packed(found, spec))

    return decode


def _packed(found: Any, spec: str) -> bytes:
    """What a function gave, as a message of the codec's own: from there on the same rules hold."""
    if isinstance(found, Event):
        found = msgspec.structs.asdict(found)
    if not isinstance(found, Mapping):
        what = type(found).__name__
        raise EventError(f"no event: {spec} gave a {what}, not a dict or an Event", "decoder")
    try:
        fields = {name: found[name] for name in Event.__struct_fields__ if name in found}
        if isinstance(fields.get("x"), Mapping):
            fields["x"] = dict(fields["x"])
        return _pack(fields)
    except UnicodeEncodeError:
        raise EventError(f"no event: {spec} gave text that is no Unicode", "invalid") from None
    except Exception as error:  # a mapping or an array of a stranger's making
        told = f"no event: what {spec} gave cannot be read: {type(error).__name__}: {_said(error)}"
        raise EventError(told, "decoder") from None


def _plain(value: Any) -> Any:
    """A kind of str as a plain one; an array or a number of NumPy's."""
    if isinstance(value, str):
        return str.encode(value).decode()
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is neither a number nor text")


_pack = msgspec.msgpack.Encoder(enc_hook=_plain, decimal_format="number").encode


def _said(error: BaseException) -> str:
    try:
        return printable(str(error), _MOST)
    except Exception:  # an error that cannot even be printed
        return "(no message)"
