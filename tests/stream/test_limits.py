"""How much one message may be: size, text, depth. The decision never depends on what came before."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamforest.errors import EventError
from streamforest.stream.depth import json_is_deeper, msgpack_is_deeper
from streamforest.stream.events import Bounds, Format, decoder, encode

nested = st.recursive(
    st.none() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=20,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@settings(deadline=None, max_examples=300)
@given(nested, st.integers(0, 6))
def test_depth_is_that_of_the_decoded_value(value: Any, most: int) -> None:
    deeper = depth(value) > most
    assert json_is_deeper(json.dumps(value).encode(), most) == deeper
    assert json_is_deeper(json.dumps(value, indent=1, ensure_ascii=False).encode(), most) == deeper
    assert msgpack_is_deeper(msgspec.msgpack.encode(value), most) == deeper


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(["x", "y", "z", "w"]), nested, min_size=1), st.integers(2, 6)
)
def test_fields_of_a_known_type_are_left_aside(fields: dict[str, Any], most: int) -> None:
    unknown = {name: value for name, value in fields.items() if name in "zw"}
    deeper = bool(unknown) and depth(unknown) > most
    assert msgpack_is_deeper(msgspec.msgpack.encode(fields), most, {"x", "y"}) == deeper


@settings(deadline=None, max_examples=300)
@example(b"\x81\xa4\x00\x00\x00\x80", 0)  # a name that is no UTF-8
@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_have_an_answer(raw: bytes, most: int) -> None:
    json_is_deeper(raw, most)
    msgpack_is_deeper(raw, most)
    msgpack_is_deeper(raw, most, {"x"})


def test_ext_types_and_every_length_of_text_are_stepped_over() -> None:
    for size in (0, 31, 32, 255, 256, 65_535, 65_536):
        for item in ("a" * size, b"b" * size, msgspec.msgpack.Ext(5, b"c" * size)):
            raw = msgspec.msgpack.encode([item, [[1]]])
            assert not msgpack_is_deeper(raw, 3)
            assert msgpack_is_deeper(raw, 2)
    wide = msgspec.msgpack.encode([[0] * 70_000, {str(i): [1] for i in range(70_000)}])
    assert not msgpack_is_deeper(wide, 3)
    assert msgpack_is_deeper(wide, 2)


def test_a_name_that_stands_twice_hides_nothing() -> None:
    pair = msgspec.msgpack.encode("z")
    deep = b"\x91" * 40 + b"\x01"
    raw = b"\x83" + msgspec.msgpack.encode("x") + b"\x80" + pair + deep + pair + b"\x01"
    assert msgpack_is_deeper(raw, 32, {"x"})


@pytest.mark.parametrize("hostile", [b'"', b'\\"', b'"\\', b"[", b"{}", b'["', b"\\", b"[]"])
def test_a_megabyte_of_anything_is_looked_at_in_one_pass(hostile: bytes) -> None:
    raw = b'{"x": ' + hostile * (2_000_000 // len(hostile))
    json_is_deeper(raw, 32)  # a second look at every quote would take hours


def reason(raw: bytes | None, form: Format = "json", **limits: int) -> str:
    try:
        decoder(form, Bounds(**limits))(raw)
    except EventError as error:
        return error.reason if len(str(error)) < 300 else "too long a story"
    return "event"


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_each_limit_is_its_own_reason(form: Format) -> None:
    def said(fields: dict[str, Any], **limits: int) -> str:
        return reason(encode(fields, form), form, **limits)

    x: dict[str, Any] = {"a": 1.0}
    assert said({"x": x, "id": "i" * 200}, max_bytes=100) == "too_large"
    for field in ({"y": "l" * 9}, {"id": "l" * 9}, {"coarse": "l" * 9}, {"ts": "l" * 9}):
        assert said({"x": x, **field}, max_text=8) == "too_long"
        assert said({"x": x, **field}, max_text=9) == "event"
    assert said({"x": {"n" * 9: 1.0}}, max_text=8) == "too_long"
    assert said({"x": {"n": "c" * 9}}, max_text=8) == "too_long"
    assert said({"x": {"n" * 300: "c" * 300}, "y": "l" * 300}, max_text=300) == "event"
    assert said({"x": x, "trace": [[1]]}, max_depth=3) == "event"
    assert said({"x": x, "trace": [[[1]]]}, max_depth=3) == "too_deep"
    assert said({"x": x}, max_depth=2) == "event"


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_what_came_before_changes_no_decision(form: Format) -> None:
    """Unknown fields make the decoder take another way; it must come to the same end."""
    x: dict[str, Any] = {"a": 1.0}
    raw = [
        encode({"x": x}, form),
        encode({"x": x, "trace": "t"}, form),
        encode({"x": x, "trace": [[[[1]]]]}, form),
        encode({"x": x, "y": "long" * 99, "more": 1}, form),
        encode({"x": [[[[1]]]]}, form),
        encode({"y": 1}, form),
        encode({"x": x, "v": 9, "more": 2}, form),
        encode({"x": x}, form)[:-1],
        encode({"x": x, "deep": [[[[1]]]]}, form)[:-1],
        b"",
    ]

    def told(decode: Any, value: bytes) -> tuple[str, str]:
        try:
            return "event", repr(decode(value))
        except EventError as error:
            return error.reason, str(error)

    fresh = [told(decoder(form, Bounds(max_depth=3)), value) for value in raw]
    used = decoder(form, Bounds(max_depth=3))
    used(raw[1])
    assert [told(used, value) for value in raw] == fresh
    assert {"event", "too_deep", "too_long", "invalid", "version", "undecodable"} >= {
        said for said, _ in fresh
    }
