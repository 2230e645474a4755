"""The codec: what is an event, what is not, and that nothing but EventError comes out of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamforest.errors import EventError
from streamforest.io.codec.events import decoder, encode, json_schema

decode = decoder()
unpack = decoder("msgpack")


def test_named_features_and_all_fields() -> None:
    raw = b'{"id": 7, "ts": 1.5, "x": {"a": 1, "b": "red", "c": null, "d": true}, "y": 3, "z": {}}'
    event = decode(raw)
    assert event.x == {"a": 1.0, "b": "red", "c": None, "d": True}
    assert (event.id, event.ts, event.y, event.coarse) == (7, 1.5, 3, None)


def test_vectors_in_both_formats_are_the_same_numbers() -> None:
    vector = np.array([0.1, -2.5, 3.0], "<f4")
    numbers = vector.astype(float).tolist()
    assert decode(encode({"x": numbers})).x == numbers
    assert unpack(encode({"x": numbers}, "msgpack")).x == numbers
    assert unpack(msgspec.msgpack.encode({"x": vector.tobytes(), "y": "a"})).x == numbers


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b"{", "undecodable"),
        (b"[" * 100_000, "too_deep"),
        (b'{"z": ' + b"[" * 100_000, "too_deep"),
        (b"7", "invalid"),
        (b'{"y": 1}', "invalid"),
        (b'{"x": {"a": [1]}}', "invalid"),
        (b'{"x": [1, "a"]}', "invalid"),
        (b'{"x": {"a": 1e999}}', "invalid"),
        (b'{"x": {"a": NaN}}', "undecodable"),
        (b'{"x": {}, "y": ' + b"9" * 30 + b"}", "invalid"),
        (b'{"x": {}, "y": "' + b"l" * 300 + b'"}', "too_long"),
        (b'{"x": {"' + b"n" * 300 + b'": 1}}', "too_long"),
        (b'{"x": {}, "v": 2}', "version"),
        (b'{"x": {}, "id": "' + b"i" * 2_000_000 + b'"}', "too_large"),
    ],
)
def test_what_is_no_event_says_why(raw: bytes | None, reason: str) -> None:
    with pytest.raises(EventError, match=r"^invalid event: ") as caught:
        decode(raw)
    assert caught.value.reason == reason
    assert len(str(caught.value)) < 300


def test_a_raw_vector_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(EventError, match="5 bytes is not float32"):
        unpack(msgspec.msgpack.encode({"x": b"12345"}))


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_an_event_or_an_event_error(raw: bytes) -> None:
    for one in (decode, unpack):
        try:
            one(raw)
        except EventError:
            continue


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["x", "y", "id", "ts", "v", "coarse"]), json_values))
def test_random_objects_are_an_event_or_an_event_error(fields: dict[str, Any]) -> None:
    try:
        event = decode(json.dumps(fields).encode())
    except EventError:
        return
    assert isinstance(event.x, dict | list)


def test_the_schema_names_every_field_and_its_examples_decode() -> None:
    schema = json_schema()
    (event,) = [d for name, d in schema["$defs"].items() if name == "Event"]
    assert set(event["properties"]) == {"x", "y", "id", "ts", "coarse", "v"}
    assert event["required"] == ["x"]
    for example in schema["examples"]:
        decode(json.dumps(example).encode())
