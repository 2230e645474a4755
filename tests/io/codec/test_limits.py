"""How much one message may be: size, text, depth, items. The decision never depends on what came before."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamforest.errors import EventError
from streamforest.io.codec.events import Bounds, Format, decoder, encode
from streamforest.io.codec.nesting import (
    json_holds_more,
    json_is_deeper,
    msgpack_holds_more,
    msgpack_is_deeper,
)

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
        assert said({"x": x, **field}, max_text_length=8) == "too_long"
        assert said({"x": x, **field}, max_text_length=9) == "event"
    assert said({"x": {"n" * 9: 1.0}}, max_text_length=8) == "too_long"
    assert said({"x": {"n": "c" * 9}}, max_text_length=8) == "too_long"
    assert said({"x": {"n" * 300: "c" * 300}, "y": "l" * 300}, max_text_length=300) == "event"
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
    assert {"event", "too_deep", "too_long", "invalid", "version", "undecodable", "empty"} >= {
        said for said, _ in fresh
    }


def items(value: Any) -> int:
    if isinstance(value, dict):
        return 2 * len(value) + sum(map(items, value.values()))
    return len(value) + sum(map(items, value)) if isinstance(value, list) else 0


@settings(deadline=None, max_examples=300)
@given(nested, st.integers(0, 12))
def test_items_are_those_of_the_decoded_value(value: Any, most: int) -> None:
    more = items(value) > most
    assert json_holds_more(json.dumps(value).encode(), most) == more
    assert json_holds_more(json.dumps(value, indent=1, ensure_ascii=False).encode(), most) == more
    assert msgpack_holds_more(msgspec.msgpack.encode(value), most) == more


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_have_a_number_of_items(raw: bytes, most: int) -> None:
    json_holds_more(raw, most)
    msgpack_holds_more(raw, most)


def test_what_an_array_says_of_itself_is_believed() -> None:
    assert msgpack_holds_more(b"\xdd\xff\xff\xff\xff", 1_000)
    assert msgpack_holds_more(b"\xde\x10\x00", 8_191)
    assert not msgpack_holds_more(b"\xde\x10\x00", 8_192)


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_items_are_bounded_in_every_field(form: Format) -> None:
    def said(fields: dict[str, Any]) -> str:
        return reason(encode(fields, form), form, max_items=16)

    padded = {"pad": "p" * 20}  # a message of no more bytes than that is not even counted
    assert said({"x": [1.0] * 12, **padded}) == "event"
    assert said({"x": [1.0] * 13, **padded}) == "too_many"
    assert said({"x": {str(i): 1.0 for i in range(6)}, **padded}) == "event"
    assert said({"x": {str(i): 1.0 for i in range(7)}, **padded}) == "too_many"
    assert said({"x": [1.0], "trace": [[]] * 11, **padded}) == "too_many"
    assert said({"x": [1.0], "trace": [[]] * 9, **padded}) == "event"


def test_a_raw_vector_has_as_many_items_as_numbers() -> None:
    for n, expected in ((16, "event"), (17, "too_many")):
        raw = msgspec.msgpack.encode({"x": bytes(4 * n)})
        assert reason(raw, "msgpack", max_items=16) == expected


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_ids_times_and_versions_are_bounded(form: Format) -> None:
    def said(**fields: Any) -> str:
        return reason(encode({"x": [1.0], **fields}, form), form)

    for field in ("id", "ts"):
        for value in (2**63 - 1, -(2**63), "t" * 256, None):
            assert said(**{field: value}) == "event"
        assert said(**{field: 2**64 - 1}) == "invalid"
        assert said(**{field: "t" * 257}) == "too_long"
        assert said(**{field: [1]}) == "invalid"
    assert said(ts=1.5e18) == "event"
    assert said(ts=1e300) == "invalid"
    assert said(id=1.5) == "invalid"
    assert said(v=2**64 - 1) == "invalid"
    assert said(v=2**63 - 1) == "version"
    if form == "json":
        digits = b"9" * 5_000
        for field in (b"id", b"ts", b"v", b"y", b"coarse"):
            assert reason(b'{"x": [1], "' + field + b'": ' + digits + b"}") == "invalid"
    else:
        assert said(ts=float("nan")) == said(ts=float("inf")) == "invalid"


def test_the_dead_letter_says_which_field_and_what_it_may_be() -> None:
    with pytest.raises(EventError, match=r"Expected `int` <= 9223372036854775807 - at `\$.id`"):
        decoder()(b'{"x": [1], "id": 9223372036854775808}')


def test_a_name_that_is_no_utf8_is_judged_alike_whatever_came_before() -> None:
    raw = b"\x82\xa1x\x91\x01\xa1\xff\x01"
    fresh, used = decoder("msgpack"), decoder("msgpack")
    used(encode({"x": [1.0], "more": 1}, "msgpack"))
    assert fresh(raw).x == used(raw).x == [1.0]


HOSTILE: dict[str, tuple[Format, bytes]] = {
    "json: empty arrays": ("json", b'{"x":{},"t":[' + b"[]," * 340_000 + b"[]]}"),
    "json: deep": ("json", b'{"x":{},"t":' + b"[" * 1_000_000),
    "json: quotes": ("json", b'{"x":{},"t":' + b"[" * 40 + b'"' * 1_000_000),
    "json: escapes": ("json", b'{"x":{},"t":' + b"[" * 40 + b'"' + b'\\"' * 500_000),
    "json: one name": ("json", b'{"x":{' + b'"a":1,' * 170_000 + b'"a":1}}'),
    "json: one field": ("json", b"{" + b'"x":[],' * 60_000 + b'"x":7}'),
    "json: digits": ("json", b'{"x":[' + b"9" * 1_000_000 + b"]}"),
    "json: digits of an id": ("json", b'{"x":[],"id":' + b"9" * 1_000_000 + b"}"),
    "json: a long text": ("json", b'{"x":{"a":"' + b"a" * 1_000_000 + b'"}}'),
    "msgpack: empty arrays": ("msgpack", b"\x82\xa1x\x80\xa1t" + b"\x9f" * 9 + b"\x90" * 1_000_000),
    "msgpack: deep": ("msgpack", b"\x82\xa1x\x80\xa1t" + b"\x91" * 1_000_000),
    "msgpack: within the limit": (
        "msgpack",
        b"\x82\xa1z\x80\xa1t\xdf\x00\x00\xff\xf0" + b"\xda\x00\x00" * (2 * 0xFFF0),
    ),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_megabyte_is_refused_in_no_time(attack: str) -> None:
    form, raw = HOSTILE[attack]
    decode = decoder(form)
    begun = time.perf_counter()
    with pytest.raises(EventError):
        decode(raw)
    assert time.perf_counter() - begun < 2, "generous: .1 s is what it takes"
