"""The layout of a record: which of its fields are label and id, and which are features.

*nested*: the features are the object (or the array) `x`; label and id stand beside it, and other fields are
ignored. *flat*: every field is a feature except label, id and coarse label; objects in it are flattened,
with dots between the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any

from msgspec import UNSET

from streamforest.errors import EventError
from streamforest.io.codec.events import VERSION, Bounds, Event
from streamforest.io.features.rules import FeatureRules
from streamforest.text import shown

NESTED, FLAT = "nested", "flat"
MISSING: Any = object()
NO_FEATURES = "invalid event: the record has no features"


def look_up(fields: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; MISSING if there is none. A name with dots in it comes first.

    >>> look_up({"a": {"b": 1}}, "a.b"), look_up({"a.b": 2, "a": {"b": 1}}, "a.b")
    (1, 2)
    """
    if path in fields:
        return fields[path]
    here: Any = fields
    for name in path.split("."):
        if not isinstance(here, Mapping) or name not in here:
            return MISSING
        here = here[name]
    return here


def flatten(fields: Mapping[str, Any], bounds: Bounds) -> dict[str, Any]:
    """One level of names, with dots; an array gives its items by number, one of texts stays whole.

    >>> flatten({"a": {"b": 1, "c": [2, 3]}, "tags": ["x", "y"]}, Bounds())
    {'a.b': 1, 'a.c.0': 2, 'a.c.1': 3, 'tags': ['x', 'y']}
    """
    out: dict[str, Any] = {}
    longest = bounds.max_text_length
    for name, value in fields.items():
        if type(name) is not str:
            name = str(name)
        if type(value) is dict or type(value) is list:
            _flatten(name, value, out, bounds, 2)
        else:
            out[name] = value
        if len(name) > longest:
            raise _too_long(f"the name {shown(name)}", bounds)
    return out


def _flatten(prefix: str, value: Any, out: dict[str, Any], bounds: Bounds, depth: int) -> None:
    if type(value) is list and value and all(type(item) is str for item in value):
        out[prefix] = value
    elif type(value) is dict or type(value) is list:
        if depth > bounds.max_depth:
            raise EventError(
                f"invalid event: nested in more than events.max_depth={bounds.max_depth} levels",
                "too_deep",
            )
        items = value.items() if type(value) is dict else enumerate(value)
        for name, item in items:
            _flatten(f"{prefix}.{name}", item, out, bounds, depth + 1)
    else:
        if len(prefix) > bounds.max_text_length:
            raise _too_long(f"the name {shown(prefix)}", bounds)
        out[prefix] = value


def is_nested(fields: Mapping[str, Any]) -> bool:
    """Whether a record has its features in `x`."""
    return isinstance(fields.get("x"), dict | list | bytes)


def flat_event(
    fields: Mapping[str, Any], rules: FeatureRules, bounds: Bounds, labels: bool
) -> Event:
    """The event in a flat record. With `labels` a record without features is a label: `x` is UNSET."""
    x = flatten(fields, bounds)
    y = _scalar(x, fields, rules.label, bounds, "label")
    identity = _scalar(x, fields, rules.id, bounds, "id")
    coarse = _scalar(x, fields, rules.coarse, bounds, "coarse label")
    if not x:
        if labels and not (y is None and coarse is None) and identity is not None:
            return Event(UNSET, y, identity, None, coarse)  # type: ignore[arg-type]
        raise EventError(NO_FEATURES, "invalid")
    return Event(x, y, identity, None, coarse)


def nested_event(fields: Mapping[str, Any], rules: FeatureRules, bounds: Bounds) -> Event:
    """The event in a record whose features are the object or the array `x`."""
    x = fields.get("x")
    version = fields.get("v", VERSION)
    if version != VERSION:
        raise EventError(
            f"invalid event: envelope version {shown(version)}, this consumer reads {VERSION}",
            "version",
        )
    features: Any
    if isinstance(x, list):
        if not all(isinstance(value, int | float | Decimal) for value in x):
            raise EventError("invalid event: the array x may hold only numbers", "invalid")
        features = [float(value) for value in x]
    elif isinstance(x, dict):
        features = flatten(x, bounds)
    else:
        raise EventError(f"invalid event: x is {shown(x)}, not an object or an array", "invalid")
    return Event(
        features,
        _scalar({}, fields, rules.label, bounds, "label"),
        _scalar({}, fields, rules.id, bounds, "id"),
        None,
        _scalar({}, fields, rules.coarse, bounds, "coarse label"),
    )


def label_of(fields: Mapping[str, Any], rules: FeatureRules, bounds: Bounds) -> Event:
    """Label, id and coarse label of a record without features."""
    y = _scalar({}, fields, rules.label, bounds, "label")
    identity = _scalar({}, fields, rules.id, bounds, "id")
    coarse = _scalar({}, fields, rules.coarse, bounds, "coarse label")
    return Event(UNSET, y, identity, None, coarse)  # type: ignore[arg-type]


def _scalar(
    flat: dict[str, Any], fields: Mapping[str, Any], path: str, bounds: Bounds, what: str
) -> Any:
    """The label or id at a path, taken out of the features."""
    value = flat.pop(path, MISSING)
    if value is MISSING:
        value = look_up(fields, path)
    if value is MISSING or value is None:
        return None
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "an array"
        raise EventError(f"invalid event: the {what} {path!r} is {kind}, not a value", "invalid")
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    elif isinstance(value, date | time):
        value = value.isoformat()
    elif isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    elif not isinstance(value, str | int | float):
        value = str(value)
    if isinstance(value, str) and len(value) > bounds.max_text_length:
        raise _too_long(f"the {what} {shown(value)}", bounds)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise EventError(f"invalid event: the {what} {shown(value)} is beyond 64 bits", "invalid")
    if what == "id" and isinstance(value, float | bool):
        value = int(value) if float(value).is_integer() else str(value)
    return value


def _too_long(what: str, bounds: Bounds) -> EventError:
    return EventError(
        f"invalid event: {what} is longer than events.max_text_length={bounds.max_text_length}",
        "too_long",
    )
