"""Any kind of column, array or label: `advance` and `learn_one` take the same events, to the same bits.

Missing values are the one thing a frame tells otherwise: pandas writes NaN in their place, so there, and only
there, NaN is no number that is refused but a value that is missing.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamforest
from streamforest import ConsistentForestClassifier
from streamforest.errors import FeatureError, InputError, LabelError
from streamforest.forests.core import registry
from streamforest.forests.persistence.snapshot import encode

pytestmark = [
    pytest.mark.filterwarnings("error"),
    # a socket that a test before left open is collected at any moment, in any test
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

KINDS = [f.class_name.removesuffix("ForestClassifier") for f in registry.entries()]
NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64", "longdouble")
YS = ["a", "b", "a", "b", "a"]
SIGNALLING = np.frombuffer(struct.pack("<I", 0x7FA00000), "<f4")


def arrow(values: list[Any], **how: Any) -> pd.Series:
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(values, **how)))


def objects(*values: Any) -> pd.Series:
    return pd.Series(list(values), dtype=object)


def columns() -> dict[str, pd.Series]:
    """Five rows of every kind of column."""
    bits, gaps = np.array([0, 1, 1, 0, 1]), [1, None, 1, 1, 0]
    zoo: dict[str, Any] = {t: pd.Series(bits.astype(t)) for t in (*NUMBERS, *FLOATS, "bool")}
    for t in ("Int8", "Int64", "UInt8", "UInt64", "Float32", "Float64", "boolean"):
        zoo[t] = pd.Series(gaps, dtype=t)
    for t in ("int64", "uint8", "double", "float", "halffloat", "bool"):
        zoo[f"arrow {t}"] = pd.Series(gaps, dtype=f"{t}[pyarrow]")
    for t in ("string", "string[pyarrow]", "str", "category"):
        zoo[t] = pd.Series(["a", None, "b", "a", "c"], dtype=t)
    moments = pd.date_range("2020", periods=5)
    return zoo | {
        "nan": pd.Series([1.0, np.nan, 2, 3, 4]),
        "nan of float32": pd.Series(np.array([1.0, np.nan, 2, 3, 4], np.float32)),
        "signalling": pd.Series(np.repeat(SIGNALLING, 5)),
        "inf": pd.Series([1.0, np.inf, 2, 3, 4]),
        "wider than float64": pd.Series(np.array([1, 2, 3, 4, np.longdouble("1e400")])),
        "beyond 2**53": pd.Series([2**63 - 1, 2**53 + 1, -(2**63), 0, 1]),
        "beyond 2**63": pd.Series(np.array([2**64 - 1, 2**53 + 1, 3, 0, 1], np.uint64)),
        "sparse": pd.Series(pd.arrays.SparseArray([0, 0, 1.0, 0, 2])),
        "arrow nan": arrow([1.0, float("nan"), None, 2.0, 3.0]),
        "arrow decimal": arrow([Decimal("1.5"), None, Decimal(2), Decimal(3), Decimal(4)]),
        "arrow time": arrow([dt.datetime(2020, 1, 1)] * 5),
        "arrow list": arrow([[1]] * 5),
        "arrow binary": arrow([b"a"] * 5),
        "arrow null": arrow([None] * 5, type=pa.null()),
        "arrow dictionary": arrow(["a", "b", "a", "b", "a"]).astype("category"),
        "categories of numbers": pd.Series([1, 2, None, 1, 2], dtype="category"),
        "categories of times": pd.Series(moments.astype("category")),
        "times": pd.Series(moments),
        "times in a zone": pd.Series(moments.tz_localize("UTC")),
        "no times": pd.Series([pd.NaT] * 5),
        "spans": pd.Series(pd.to_timedelta([1, 2, 3, 4, 5], unit="s")),
        "periods": pd.Series(pd.period_range("2020", periods=5)),
        "intervals": pd.Series(pd.interval_range(0, 5)),
        "complex": pd.Series([1j, 2, 3, 4, 5]),
        "all kinds of numbers": objects(1, 2.5, True, None, np.float32(0.1)),
        "decimals": objects(Decimal("1.1"), Fraction(1, 3), None, Decimal("NaN"), 1),
        "signalling decimals": objects(1, 2, 3, Decimal("sNaN"), 1),
        "small numbers that sum up": objects(*np.array([200] * 5, np.uint8)),
        "numbers and texts": objects("a", 1, 2.0, None, "b"),
        "texts after numbers": objects(1.0, "a", 2.0, None, "b"),
        "nothing in all ways": objects(1, pd.NA, pd.NaT, None, float("nan")),
        "bytes": objects(b"a", b"b", b"a", b"a", b"a"),
        "lists": objects([1], [2], [3], [4], [5]),
        "an int of 400 digits": objects(10**400, 1, 2, 3, 4),
        "an int of 5,000 digits": objects(10**5_000, 1, 2, 3, 4),
        "a moment": objects(np.datetime64("2020"), 1, 2, 3, 4),
        "a span": objects(np.timedelta64(3, "s"), 1, 2, 3, 4),
        "a date": objects(dt.date(2020, 1, 1), 1, 2, 3, 4),
        "a fraction too large": objects(Fraction(10**400), 1, 2, 3, 4),
        "an array of no dimension": objects(np.array(3.0), 1, 2, 3, 4),
        "an array": objects(np.array([3.0]), 1, 2, 3, 4),
        "texts of NumPy's": objects(np.str_("a"), np.str_("b"), "a", "b", "a"),
        "a lone surrogate": objects("\ud800", "a", "b", "c", "d"),
        "a view": objects(memoryview(b"ab"), 1, 2, 3, 4),
    }


COLUMNS = columns()


def events(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as a caller of `learn_one` would have them."""

    def value(name: str, r: int) -> Any:
        found = frame[name].iloc[r]
        if frame[name].dtype.kind in "biufc":
            gap = isinstance(found, np.floating) and np.isnan(found) and not _arrow(name)
            return None if gap else found
        if isinstance(found, Decimal):
            return None if found.is_nan() else found
        return None if isinstance(found, float) and found != found and not _arrow(name) else found

    def _arrow(name: str) -> bool:  # there a NaN is a number like any other, beside the gaps
        return isinstance(frame[name].dtype, pd.ArrowDtype)

    return [{name: value(name, r) for name in frame} for r in range(len(frame))]


def outcome(kind: str, nonfinite: str, learn: Callable[[Any], None]) -> Any:
    """The bytes of what was learned, or the class of the error."""
    maker = getattr(streamforest, f"{kind}ForestClassifier")
    model = maker(n_trees=1, seed=0, nonfinite=nonfinite)
    try:
        learn(model)
    except Exception as error:
        return type(error)
    return encode({"main": model})


def check(frame: pd.DataFrame, kind: str, nonfinite: str) -> Any:
    """One by one, as a batch of dicts, as a frame, as frames of one row: all the same."""
    xs = events(frame)

    def one_by_one(model: Any) -> None:
        for x, y in zip(xs, YS):
            model.learn_one(x, y)

    def row_by_row(model: Any) -> None:
        for r in range(len(frame)):
            model.advance(frame.iloc[r : r + 1], YS[r : r + 1])

    found = [
        outcome(kind, nonfinite, learn)
        for learn in (
            one_by_one,
            row_by_row,
            lambda model: model.advance(xs, YS),
            lambda model: model.advance(frame, YS),
            lambda model: model.learn_many(frame, pd.Series(YS)),
        )
    ]
    assert all(one == found[0] for one in found), [
        one if isinstance(one, type) else "learned" for one in found
    ]
    assert isinstance(found[0], bytes) or issubclass(found[0], InputError), found[0]
    return found[0]


@pytest.mark.parametrize("nonfinite", ["error", "missing"])
@pytest.mark.parametrize("name", COLUMNS)
def test_each_kind_of_column(name: str, nonfinite: str) -> None:
    check(pd.DataFrame({"c": COLUMNS[name]}), "Consistent", nonfinite)
    beside = pd.DataFrame({"c": COLUMNS[name], "n": [1.5, 2.5, 3.5, 4.5, 5.5]})
    check(beside, "Consistent", nonfinite)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3, unique=True),
    st.sampled_from(["error", "missing"]),
)
def test_any_columns_side_by_side(kind: str, names: list[str], nonfinite: str) -> None:
    check(pd.DataFrame({name: COLUMNS[name] for name in names}), kind, nonfinite)


def test_times_are_refused_and_gaps_are_not() -> None:
    for name in ("times", "spans", "periods", "arrow time", "a moment", "a span", "a date"):
        assert check(pd.DataFrame({"c": COLUMNS[name]}), "Consistent", "missing") is FeatureError
    for name in ("Int64", "boolean", "no times", "arrow null", "nothing in all ways"):
        assert isinstance(check(pd.DataFrame({"c": COLUMNS[name]}), "Consistent", "error"), bytes)


@pytest.mark.parametrize("dtype", [*NUMBERS, *FLOATS, "bool"])
def test_each_kind_of_array(dtype: str) -> None:
    X = np.array([[0, 1], [1, 0], [1, 1], [0, 1], [1, 0]]).astype(dtype)

    def one_by_one(model: Any) -> None:
        for row, y in zip(X, YS):
            model.learn_one(dict(enumerate(row)), y)

    learned = outcome("Consistent", "error", one_by_one)
    assert isinstance(learned, bytes)
    assert learned == outcome("Consistent", "error", lambda model: model.advance(X, YS))
    assert learned == outcome("Consistent", "error", lambda model: model.advance(X.T.copy().T, YS))
    if dtype not in ("float16", "longdouble"):  # no memoryview has those
        view = memoryview(X)
        assert learned == outcome("Consistent", "error", lambda model: model.advance(view, YS))


@pytest.mark.parametrize("nonfinite", ["error", "missing"])
def test_a_signalling_nan_is_a_nan(nonfinite: str) -> None:
    quiet, loud = np.array([[1.0], [np.nan]], np.float32), np.ones((2, 1), np.float32)
    loud[1:] = SIGNALLING
    ways: list[Callable[[Any], None]] = [
        lambda model: model.advance(quiet, ["a", "b"]),
        lambda model: model.advance(loud, ["a", "b"]),
        lambda model: model.advance([{0: 1.0}, {0: Decimal("sNaN")}], ["a", "b"]),
    ]

    def one_by_one(model: Any) -> None:
        model.learn_one({0: 1.0}, "a")
        model.learn_one({0: Decimal("-sNaN123")}, "b")

    found = [outcome("Consistent", nonfinite, way) for way in ways]
    assert found[0] == found[1] == found[2]
    if nonfinite == "error":
        assert found[0] is FeatureError
        assert outcome("Consistent", nonfinite, one_by_one) is FeatureError
    else:
        assert found[0] == outcome("Consistent", nonfinite, one_by_one)
    model = ConsistentForestClassifier(n_trees=1, seed=0)
    for i in range(3):  # the fast way too, where sums are taken
        model.learn_one({"a": 1.0, "b": 2.0 + i}, "x")
    with pytest.raises(FeatureError, match="'b' is nan"):
        model.learn_one({"a": Decimal(1), "b": Decimal("sNaN")}, "x")


@pytest.mark.parametrize(
    "y",
    [
        "abab",
        b"abab",
        bytearray(b"abab"),
        {"a", "b", "c", "d"},
        frozenset("abcd"),
        {"a": 1, "b": 2, "c": 3, "d": 4},
        pd.DataFrame({"a": [1], "b": [2], "c": [3], "d": [4]}),
        np.array("abab"),
        np.array([["a", "b"]] * 4),
        np.array(["2020", "2021", "2022", "2023"], "M8[ns]"),
        np.array([1, 2, 3, 4], "m8[s]"),
        memoryview(np.zeros((4, 2))),
        [np.timedelta64(1, "s")] * 4,
        [np.datetime64("2020", "ns")] * 4,
        [10**5_000] * 4,
        7,
    ],
    ids=lambda y: type(y).__name__,
)
def test_labels_are_a_list_of_labels(y: Any) -> None:
    model = ConsistentForestClassifier(n_trees=1, seed=0)
    with pytest.raises(LabelError):
        model.advance(np.zeros((4, 1)), y)
    assert model.classes_ == []
    model.advance(np.zeros((4, 1)), ("a", "b", "a", "b"))
    model.advance(np.zeros((4, 1)), {"a": 1, "b": 2, "c": 3, "d": 4}.keys())
    assert model.classes_ == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "X",
    [
        memoryview(b"abcd"),
        memoryview(np.zeros((2, 2, 2))),
        [[1.0], [1.0, 2.0]],
        "ab",
        {0, 1},
        {"a": 1, "b": 2},
        [[None], [1.0]],
        [10**5_000, 1],
        np.array([["a"], ["b"]]),
        np.array([[1], [2]], "M8[s]"),
    ],
    ids=lambda X: type(X).__name__,
)
def test_what_is_no_table_is_a_feature_error(X: Any) -> None:
    with pytest.raises(FeatureError):
        ConsistentForestClassifier(n_trees=1, seed=0).advance(X)


def test_a_row_of_a_frame_is_an_event() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    one, other = (ConsistentForestClassifier(n_trees=1, seed=0) for _ in range(2))
    for r in range(2):
        one.learn_one(frame.iloc[r], "x")
        other.learn_one(dict(frame.iloc[r]), "x")
    assert encode({"main": one}) == encode({"main": other})
    with pytest.raises(FeatureError):
        one.learn_one({np.timedelta64(1, "s"): 1.0}, "x")
    with pytest.raises(FeatureError):
        one.learn_one({10**5_000: 1.0}, "x")
