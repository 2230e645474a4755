"""Events of numbers take a short way, which gives what the long one gives."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamforest.errors import EventError
from streamforest.io.codec.decoders import RecordDecoder, by_value, numbers_codec
from streamforest.io.codec.events import Format, decoder, fields_decoder
from streamforest.io.features.profile import ROWS
from streamforest.io.log import Records
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.processing.intake import take_in
from streamforest.runtime.processing.limits import Limits

NAMES = ["a", "b", "ä c"]
Fields = dict[str, Any] | bytes


def codec(format: Format = "json") -> RecordDecoder:
    return by_value(decoder(format), fields_decoder(format), "id", numbers_codec(format))


def record(fields: Fields, format: Format = "json", offset: int = 0, **more: Any) -> Any:
    module = msgspec.json if format == "json" else msgspec.msgpack
    value = fields if isinstance(fields, bytes) else module.encode(fields)
    return SimpleNamespace(
        **{"offset": offset, "timestamp": 0, "key": None, "headers": (), "value": value, **more}
    )


# ---- one event

number = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
value = number | st.none() | st.booleans() | st.text(max_size=3) | st.just("3.5")
label = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(-2, 2)
    | st.text(max_size=3)
)
features = st.fixed_dictionaries(
    dict.fromkeys(NAMES, number) | {"a": st.one_of(number, value)},
    optional={"more": number},
).flatmap(lambda x: st.permutations(list(x.items())).map(dict))
beside = st.fixed_dictionaries(
    {},
    optional={
        "y": label,
        "id": label,
        "coarse": label,
        "ts": number,
        "v": st.sampled_from([1, 2]),
        "other": st.just({"deep": [1]}),
    },
)


def same(one: Any, other: Any) -> bool:
    """Whether two labels are equal, and of one type."""
    return type(one) is type(other) and (one == other)


def check(message: Any, columns: list[Any], flat: bool, format: Format = "json") -> bool:
    """Whether the short way takes it; if so it is the event of the long way."""
    state = RunState.new({}, Limits())
    decode = codec(format)
    state.reader.layout = "flat" if flat else "nested"
    state.reader.columns.adopt(columns, [True] * len(columns))
    assert decode.numbers is not None
    numbers = decode.numbers(columns, flat)
    assert numbers is not None
    short = numbers(message)
    if short is None:
        return False
    long = state.reader.read(message, decode)
    x = state.reader.convert(long.x)
    named = x if isinstance(x, dict) else dict(enumerate(x))
    assert dict(zip(columns, short.x, strict=True)) == named
    assert all(type(one) is float for one in short.x)
    for field in ("y", "id", "coarse"):
        assert same(getattr(short, field), getattr(long, field)), field
    return True


@settings(deadline=None, max_examples=300, derandomize=True)
@given(features, beside, st.booleans(), st.sampled_from(["json", "msgpack"]))
def test_what_it_takes_is_the_event_of_the_long_way(
    x: dict[str, Any], beside: dict[str, Any], flat: bool, format: Format
) -> None:
    try:
        message = record({**x, **beside} if flat else {"x": x, **beside}, format)
    except OverflowError:  # beyond what MessagePack has for integers
        return
    check(message, NAMES, flat, format)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(
    "inner",
    [
        b'"a": 1, "b": 2.5, "\\u00e4 c": -3e2',
        b'"b": 2, "\\u0061": 18446744073709551617, "a": 7, "\xc3\xa4 c": 1e-400',
        b'"\xc3\xa4 c": 123456789012345678, "b": 0.1, "a": -0',
    ],
)
def test_it_takes_names_and_numbers_however_they_are_written(inner: bytes, flat: bool) -> None:
    message = b'{%s, "y": 1}' % inner if flat else b'{"x": {%s}, "y": 1}' % inner
    assert check(record(message), NAMES, flat)


@pytest.mark.parametrize(
    "x", [[1.0, 2, 3e5], [1, 2], [1, None, 2], [1, True, 2], [1.0, 2.0, 3.0, 4.0]]
)
def test_arrays(x: list[Any]) -> None:
    numbers = codec().numbers
    assert numbers is not None
    taken = check(record({"x": x, "y": "k"}), [0, 1, 2], False) if len(x) == 3 else None
    if x == [1.0, 2, 3e5]:
        assert taken
    else:
        decode = numbers([0, 1, 2], False)
        assert decode is not None
        assert decode(record({"x": x})) is None


def test_what_it_does_not_take() -> None:
    numbers = codec().numbers
    assert numbers is not None
    decode = numbers(NAMES, False)
    assert decode is not None
    plain = {"x": dict.fromkeys(NAMES, 1.0)}
    assert decode(record(plain)) is not None
    assert decode(record(plain, headers=[("trace", b"7")])) is not None
    cloud = [("ce_specversion", b"1.0"), ("ce_id", b"e-1")]
    assert decode(record(plain, headers=cloud)) is None
    assert decode(record(b"")) is None
    assert decode(record(plain, value=None)) is None
    assert decode(record({**plain, "v": 2})) is None
    assert decode(record({**plain, "unknown": 1})) is None
    with pytest.raises(EventError, match="a key of"):
        decode(record(plain, key=bytes(2_000_000)))
    assert numbers(['quotation " mark', "b"], False) is None
    assert numbers([f"c{i}" for i in range(1_000)], False) is None


# ---- whole streams


def stream(seed: int, flat: bool) -> list[Any]:
    """Mostly numbers, and now and then all that may come between them."""
    draw = random.Random(seed)
    several: list[Any] = []

    def add(x: Any, **beside: Any) -> None:
        fields = {**x, **beside} if flat else {"x": x, **beside}
        several.append(record(json.dumps(fields).encode(), offset=len(several)))

    for number in range(ROWS + 600):
        x: dict[str, Any] = {name: draw.gauss(0, 1) for name in draw.sample(NAMES, 3)}
        y: Any = draw.choice(["k", "l", None])
        late = number - ROWS
        if 100 < late < 400 and late % 7 == 0:
            odd = late // 7 % 8
            if odd == 0:
                x["a"] = None
            elif odd == 1:
                x["a"] = draw.choice(["text", "7.5", True, 10**400, [1, 2]])
            elif odd == 2:
                del x["b"]
            elif odd == 3 and late > 300:
                x[f"new {number % 3}"] = 1.0
            elif odd == 4:
                y = f"class {number % 5}"
            elif odd == 5:
                y = draw.choice([1, True, 1.0, {}])
            elif odd == 6 and late > 200:
                add(x, y="k", coarse="letters")
                continue
            else:
                several.append(record(b'{"x": {"a":', offset=len(several)))
                continue
        add(x, y=y, id=number)
    return several


def taken_in(several: list[Any], cut: int, decode: RecordDecoder, limits: Limits) -> Any:
    """All that comes of the records, taken in so many at a time; and how many went the short way."""
    state = RunState.new({}, limits)
    refused: list[tuple[int, str]] = []
    rows: list[Any] = []
    for first in range(0, len(several), cut):
        intake = take_in(
            state,
            Records.of(("t", 0), several[first : first + cut]),
            decode,
            lambda record, partition, error: refused.append((record.offset, str(error))),
        )
        its, table = intake.rows, intake.rows.table
        if isinstance(table, list):
            x = [{n: v for n, v in row.items() if v is not None} for row in table]
        elif hasattr(table, "columns"):
            x = [dict(zip(table.columns, row, strict=True)) for row in table.values.tolist()]
        else:
            x = [dict(enumerate(row)) for row in table.tolist()]
        nothing = [None] * len(its)
        ids = [(partition, at.offset, its_id, n) for partition, at, its_id, n in intake.taken]
        rows += zip(
            ids,
            [sorted(row.items(), key=str) for row in x],
            map(repr, its.y),
            its.op.tolist(),
            its.new,
            its.coarse or nothing,
            its.categories or nothing,
            strict=True,
        )
    return rows, refused, state.jsonable({})


@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
@pytest.mark.parametrize("largest", [math.inf, 100.0])
def test_a_stream_is_taken_in_the_same(flat: bool, largest: float) -> None:
    several = stream(3, flat)
    limits = Limits(max_classes=5, largest=largest, min_class_events=2)
    decode = codec()
    short = 0

    def counted(columns: Any, is_flat: bool) -> Any:
        assert is_flat is flat
        assert decode.numbers is not None
        made = decode.numbers(columns, is_flat)

        def count(record: Any) -> Any:
            nonlocal short
            event = made(record)
            short += event is not None
            return event

        return None if made is None else count

    long_way = taken_in(several, 50, dataclasses.replace(decode, numbers=None), limits)
    for cut in (1, 20, 137):
        assert (
            taken_in(several, cut, dataclasses.replace(decode, numbers=counted), limits) == long_way
        )
    assert short > 300
    assert long_way[1]  # something was refused
    assert any(row[5] for row in long_way[0])  # and something had a coarse label


def test_a_stream_of_arrays_is_taken_in_the_same() -> None:
    draw = random.Random(1)
    several = [
        record(
            {"x": [draw.gauss(0, 1) for _ in range(2 if draw.random() < 0.01 else 3)], "y": n % 3},
            offset=n,
        )
        for n in range(ROWS + 300)
    ]
    decode, limits = codec(), Limits(largest=50.0)
    long_way = taken_in(several, 50, dataclasses.replace(decode, numbers=None), limits)
    assert taken_in(several, 20, decode, limits) == long_way
