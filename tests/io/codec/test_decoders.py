"""A decoder of the user's own: what it gets, what it may give, what becomes of what it raises."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamforest.errors import ConfigError, EventError
from streamforest.io.codec.decoders import Function, Message, by_function
from streamforest.io.codec.events import Bounds, Event
from streamforest.runtime.config.imports import find_decoder


def record(value: bytes | None = b"raw", **more: Any) -> Any:
    return SimpleNamespace(value=value, key=b"k", headers=[("h", b"1")], offset=7, **more)


def decoded(call: Callable[[Message], Any], value: bytes | None = b"raw", **limits: int) -> Event:
    decode = by_function(Function("m:f", "", call), Bounds(**limits), "default")
    assert decode.event is not None
    return decode.event(record(value))


def refused(
    call: Callable[[Message], Any], value: bytes | None = b"raw", **limits: int
) -> EventError:
    with pytest.raises(EventError, match=r"^invalid event: ") as caught:
        decoded(call, value, **limits)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    return caught.value


def test_it_gets_the_whole_message() -> None:
    seen: list[Message] = []

    def call(message: Message) -> dict[str, Any]:
        seen.append(message)
        return {"x": {"a": 1}}

    decode = by_function(Function("m:f", "", call), Bounds(), "default")
    decode.fields(record())
    decode.fields(record(topic="orders"))
    assert seen[0] == Message(b"raw", b"k", (("h", b"1"),), "default")
    assert seen[1].topic == "orders"


class Word(str):
    __slots__ = ()


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("given", "x", "y"),
    [
        (
            {"x": {"a": 1, "b": "red", "c": None}, "y": "cat"},
            {"a": 1.0, "b": "red", "c": None},
            "cat",
        ),
        (OrderedDict(x=[1, 2.5], y=3), [1.0, 2.5], 3),
        ({"x": np.array([1.0, 2.5], np.float32), "more": object()}, [1.0, 2.5], None),
        ({"x": np.array([1.0, 2.5], "<f4").tobytes()}, [1.0, 2.5], None),
        ({"x": {"a": Decimal("1.5")}}, {"a": 1.5}, None),
        ({"x": {"a": np.float32(1.5), "b": np.int64(3)}, "y": np.int8(4)}, {"a": 1.5, "b": 3.0}, 4),
        ({"x": MappingProxyType({Word("a"): Word("red")}), "y": Colour.RED}, {"a": "red"}, "red"),
        (Event({"a": 1.0}, "cat"), {"a": 1.0}, "cat"),
    ],
)
def test_what_it_may_give(given: Any, x: Any, y: Any) -> None:
    event = decoded(lambda message: given)
    assert (event.x, event.y) == (x, y)
    assert type(event.y) is type(y), "a subclass would not be what a snapshot brings back"
    values = event.x.items() if isinstance(event.x, dict) else enumerate(event.x)
    assert {type(part) for pair in values for part in pair} <= {str, float, int, type(None)}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "decoder"),
        ([1, 2], "decoder"),
        ("text", "decoder"),
        ({"y": 1}, "invalid"),
        ({"x": {"a": [1]}}, "invalid"),
        ({"x": {1: 2.0}}, "invalid"),
        ({"x": np.array([[1.0]])}, "invalid"),
        ({"x": {"a": object()}}, "decoder"),
        ({"x": 7}, "invalid"),
        ({"x": np.array(["a"])}, "invalid"),
        ({"x": {"a": 1}, "y": b"bytes"}, "invalid"),
        ({"x": {"a": 10**400}}, "decoder"),
        ({"x": b"123"}, "invalid"),
        ({"x": {"n" * 300: 1}}, "too_long"),
        ({"x": {}, "y": "l" * 300}, "too_long"),
        ({"x": {}, "v": 2}, "version"),
        ({"x": {"\ud800": 1}}, "invalid"),
        ({"x": {"a": "\ud800"}}, "invalid"),
        ({"x": {}, "y": "\udcff"}, "invalid"),
        ({"x": {}, "id": "\udcff"}, "invalid"),
        (Event({"a": "l" * 300}), "too_long"),
        (Event("no features"), "invalid"),  # type: ignore[arg-type]
    ],
)
def test_what_it_may_not_give_is_a_dead_letter(given: Any, reason: str) -> None:
    assert refused(lambda message: given).reason == reason


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad\x1b[31m byte\n"),
        KeyError("schema"),
        RecursionError("deep"),
        MemoryError(),
        AssertionError(),
        SystemExit(3),
        StopIteration(),
        Unprintable(),
        Exception("x" * 10_000),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_it_raises_is_the_reason_of_a_dead_letter(error: BaseException) -> None:
    def call(message: Message) -> Any:
        raise error

    found = refused(call)
    assert found.reason == "decoder"
    assert f"m:f: {type(error).__name__}" in str(found)


def test_it_may_choose_among_the_known_reasons() -> None:
    for asked, given in (("invalid", "invalid"), ("version", "version"), ("my own", "decoder")):

        def call(message: Message, asked: str = asked) -> Any:
            raise EventError("schema 7 is unknown", asked)

        found = refused(call)
        assert (found.reason, "schema 7 is unknown" in str(found)) == (given, True)


def test_an_interrupt_is_not_an_event() -> None:
    def call(message: Message) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decoded(call)


def test_it_is_not_asked_about_what_no_limit_lets_through() -> None:
    def call(message: Message) -> Any:
        pytest.fail("asked")

    assert refused(call, None).reason == "empty"
    assert refused(call, b"x" * 101, max_bytes=100).reason == "too_large"


def test_a_mapping_that_fails_when_it_is_read() -> None:
    class Lazy(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise OSError("the registry is away")

        def __iter__(self) -> Iterator[str]:
            return iter(["x"])

        def __len__(self) -> int:
            return 1

    class Array:
        def tolist(self) -> Any:
            raise OSError("gone")

    assert refused(lambda message: Lazy()).reason == "decoder"
    assert refused(lambda message: {"x": Array()}).reason == "decoder"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module beside a pipeline file; its name."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(text: str) -> str:
        name = f"decoder_{abs(hash((text, tmp_path)))}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def test_its_name_and_version_are_known(tmp_path: Path, module: Callable[[str], str]) -> None:
    name = module(
        "def f(m): pass\ndef g(m): pass\ng.version = 3\ndef h(m): pass\nh.version = [1]\n"
    )
    assert find_decoder(f"{name}:f", tmp_path).name == f"{name}:f"
    assert find_decoder(f"{name}:g", tmp_path).name == f"{name}:g@3"
    with pytest.raises(ConfigError, match="invalid version \\[1\\]"):
        find_decoder(f"{name}:h", tmp_path)


def test_what_cannot_be_found_is_named(tmp_path: Path, module: Callable[[str], str]) -> None:
    name = module("x = 7\n")
    broken = module("import nowhere_to_be_found\n")
    for spec, message in (
        (f"{name}:x", "is a int, not a function"),
        (f"{name}:y", "AttributeError"),
        (f"{broken}:f", "No module named 'nowhere_to_be_found'"),
        ("nowhere_at_all:f", "ModuleNotFoundError"),
        ("nocolon", "expected module:function"),
        (":f", "expected module:function"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_decoder(spec, tmp_path)
