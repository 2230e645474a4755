"""Feature dicts, frames and arrays as rows of float64.

Each feature name owns a column from the event that brings it first; names that come together get
their columns sorted by (type name, value), so that the order of a dict never matters. NaN in a row
means: this event lacks the feature.

What a value may be:
- numbers of any kind, bools included: as float64;
- `None`, pandas' `NA` and `NaT`, or a key that is absent: missing;
- NaN and infinities: refused when learning, since they are nearly always a fault upstream, or taken as
  missing with `nonfinite="missing"`. Where an event is only predicted they count as missing: no harm is
  done, and River's own scalers give NaN for features they have not met;
- strings: categories without order. A column whose first value is a string holds categories: each
  distinct value gets a code, and trees split such a column by "is it this value?" or "is it in this
  random half of the values?". A string in a column of numbers is refused; a number in a column of
  categories is a category of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from struct import error as StructError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import CapacityError, FeatureError
from streamforest.forests.core.parameters import MAX_TEXT_BYTES
from streamforest.forests.core.values import Name, as_float, is_missing, plain_name
from streamforest.text import kept_bytes, shown

UNKNOWN, NUMBER, CATEGORY = range(3)
UNSEEN = -1.0  # code of a category that no learned event had: equal to none


class FeatureTable:
    """The columns of a model: names, kinds and categories.

    >>> table = FeatureTable(max_features=8, max_categories=8, nonfinite="error")
    >>> table.rows([{"b": 1, "a": "red"}, {"a": "blue", "c": True}], [True, True])[0]
    array([[ 0.,  1., nan],
           [ 1., nan,  1.]])
    >>> table.names
    ['a', 'b', 'c']
    """

    def __init__(
        self,
        max_features: int,
        max_categories: int,
        nonfinite: str,
        max_bytes: int = MAX_TEXT_BYTES,
    ) -> None:
        self.max_features = max_features
        self.max_categories = max_categories
        self.max_bytes = max_bytes
        self.nonfinite = nonfinite
        self.bytes = 0  # of all names and categories
        self.largest = math.inf  # absolute value that a number may have
        self.names: list[Name] = []
        self.kinds: list[int] = []
        self.categories: list[dict[Any, int]] = []
        self._index: dict[Name, int] = {}
        self._changes: list[tuple[str, int]] = []  # since `begin`, for `rollback`
        self._bytes_before = 0
        self.fresh: list[tuple[int, int]] = []  # (row, column) of new categories since `begin`
        self._prepare()

    def __len__(self) -> int:
        return len(self.names)

    def _prepare(self) -> None:
        """The fast path: every column a number, all of them there.

        Looks at every column, so it is called once for all that an event changes.
        """
        self._stale = False
        n = len(self.names)
        plain = n > 0 and all(kind == NUMBER for kind in self.kinds)
        self._fast = itemgetter(*self.names) if plain else None
        self._pack = Struct(f"{n}d").pack_into
        self.categorical = np.array([kind == CATEGORY for kind in self.kinds], np.uint8)
        self._plain = plain
        self.positional = all(type(name) is int for name in self.names)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_fast", "_pack", "_plain", "_stale", "categorical", "positional"):
            del state[name]
        state["_changes"] = []
        state["fresh"] = []
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    # ---- one event

    def pack(self, x: Mapping[Any, Any], into: bytearray, at: int) -> bool:
        """Write an event to its row if it is plain: all columns present, all of them finite numbers."""
        fast = self._fast
        if fast is None:
            return False
        try:
            if len(x) != len(self.names):
                return False
            values = fast(x)
            if len(self.names) == 1:
                values = (values,)
            total = sum(values)
            if not (isinstance(total, (float, int)) and math.isfinite(total)):
                return False  # one of them is not finite, or of a kind that needs a look
            if self.largest < math.inf and not math.hypot(*values) <= self.largest:
                return False  # the root of all squares: quicker than a look at each
            self._pack(into, at, *values)
        except (KeyError, TypeError, StructError, ArithmeticError, ValueError, RuntimeWarning):
            return False  # decimals raise what is arithmetic, NumPy's scalars may warn of a sum
        return True

    def row(self, x: Mapping[Any, Any], learn: bool) -> NDArray[np.float64]:
        """The row of any event; with `learn`, names and categories it brings enter the table."""
        try:
            # twice gone through, which the items of a Series allow only once
            items = x.items() if isinstance(x, Mapping) else list(x.items())
        except (AttributeError, TypeError):
            raise FeatureError(
                f"an event must be a dict of features, got {type(x).__name__}: {shown(x)}"
            ) from None
        if learn:
            self.require_room(len(x))
            self.add_names([name for name, _ in items if name not in self._index])
        out = np.full(len(self.names), np.nan)
        for name, value in items:
            j = self._index.get(name)
            if j is not None:
                out[j] = self._value(j, value, learn)
            elif not is_missing(value) and not isinstance(value, str):
                self._number(
                    name, value, learn
                )  # unknown to the model, but not let through unchecked
        if self._stale:
            self._prepare()
        return out

    def require_room(self, size: int) -> None:
        """Refuse an event with more features than there may ever be, before anything is done with it."""
        if size > self.max_features:
            raise CapacityError(
                f"an event of {size:,} features, over max_features={self.max_features}: raise "
                "max_features or drop such features"
            )

    def add_names(self, names: Sequence[Any]) -> None:
        """New columns, sorted by (type name, value)."""
        if not names:
            return
        if len(self.names) + len(names) > self.max_features:  # before anything is done with them
            over = names[max(0, self.max_features - len(self.names))]
            raise CapacityError(
                f"feature {shown(over)} would be number {self.max_features + 1}, over "
                f"max_features={self.max_features}: raise max_features or drop such features"
            )
        new = list(dict.fromkeys(map(plain_name, names)))
        new.sort(key=lambda name: (type(name).__name__, name))
        self._grow(sum(map(kept_bytes, new)), f"feature {shown(new[0])}")
        for name in new:
            self._index[name] = len(self.names)
            self.names.append(name)
            self.kinds.append(UNKNOWN)
            self.categories.append({})
            self._changes.append(("name", len(self.names) - 1))
        self._stale = True

    def _grow(self, by: int, what: str) -> None:
        """Count bytes of text that are new, if there is room for them."""
        if self.bytes + by > self.max_bytes:
            raise CapacityError(
                f"{what} would make {self.bytes + by:,} bytes of names and categories, over "
                f"max_text_bytes={self.max_bytes:,}: raise max_text_bytes or group the values"
            )
        self.bytes += by

    def _settle(self, j: int, kind: int) -> None:
        """The first value of a column decides what it holds."""
        self.kinds[j] = kind
        self._changes.append(("kind", j))
        self._stale = True

    def _value(self, j: int, value: Any, learn: bool) -> float:
        if is_missing(value):
            return math.nan
        kind = self.kinds[j]
        is_text = isinstance(value, str)
        if kind == NUMBER and is_text:
            raise FeatureError(
                f"feature {self.names[j]!r} holds numbers, got the string {shown(value)}: "
                "convert it, or give categories a name of their own"
            )
        if kind == CATEGORY or is_text:
            return self._category(j, str(value) if is_text else value, learn)
        number = self._number(self.names[j], value, learn)
        if learn and kind == UNKNOWN and number == number:
            self._settle(j, NUMBER)
        return number

    def _number(self, name: Any, value: Any, learn: bool) -> float:
        try:
            number = as_float(value)
        except (TypeError, ValueError, ArithmeticError):
            raise FeatureError(
                f"feature {name!r} has the value {shown(value)} ({type(value).__name__}): "
                "use a number, a string (category) or None (missing)"
            ) from None
        if math.isfinite(number):
            if abs(number) > self.largest:
                raise FeatureError(
                    f"feature {name!r} is {number:g}, beyond the {self.largest:.3g} this forest "
                    "can hold: scale it"
                )
            return number
        if self.nonfinite == "missing" or not learn:
            return math.nan
        raise FeatureError(
            f"feature {name!r} is {number}: send None or leave it out if it is missing, "
            'or set nonfinite="missing"'
        )

    def _category(self, j: int, value: Any, learn: bool) -> float:
        if not isinstance(value, str):
            value = self._number(self.names[j], value, learn)
            if value != value:
                return math.nan
        codes = self.categories[j]
        code = codes.get(value)
        if code is not None:
            return float(code)
        if not learn:
            return UNSEEN
        if len(codes) >= self.max_categories:
            raise CapacityError(
                f"feature {self.names[j]!r} has over max_categories={self.max_categories} values, "
                f"the next being {shown(value)}: raise max_categories or group the values"
            )
        self._grow(kept_bytes(value), f"feature {self.names[j]!r} = {shown(value)}")
        if self.kinds[j] == UNKNOWN:
            self._settle(j, CATEGORY)
        codes[value] = len(codes)
        self._changes.append(("category", j))
        return float(len(codes) - 1)

    # ---- batches

    def rows(
        self, events: Sequence[Mapping[Any, Any]], learns: Sequence[bool]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Rows of a batch of dicts, and the number of columns as of each row."""
        width = max(1, len(self.names))
        out = bytearray(8 * width * len(events))
        slow: dict[int, NDArray[np.float64]] = {}
        known = np.empty(len(events), np.int64)
        for r, (x, learn) in enumerate(zip(events, learns)):
            if len(self.names) != width or not self.pack(x, out, 8 * width * r):
                changes = len(self._changes)
                try:
                    slow[r] = self.row(x, learn)
                except FeatureError as error:
                    raise FeatureError(f"row {r}: {error}") from None
                except CapacityError as error:
                    raise CapacityError(f"row {r}: {error}") from None
                new = self._changes[changes:]
                self.fresh += [(r, j) for what, j in new if what == "category"]
            known[r] = len(self.names)
        packed = np.frombuffer(out, np.float64).reshape(len(events), width)
        if not slow:
            return packed, known
        full = np.full((len(events), max(1, len(self.names))), np.nan)
        full[:, :width] = packed
        for r, row in slow.items():
            full[r, : len(row)] = row
            full[r, len(row) :] = np.nan
        return full, known

    def matrix(
        self, X: NDArray[Any], names: Sequence[Any], learns: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Rows of a batch of numbers whose columns have these names."""
        with np.errstate(over="ignore", invalid="ignore"):  # wider numbers, signalling NaNs
            X = np.asarray(X, np.float64)
        finite = np.isfinite(X)
        as_known = self._plain and list(names) == self.names
        if not as_known and learns.any():
            self.add_names([name for name in names if name not in self._index])
            for name, valued in zip(names, finite[learns].any(axis=0).tolist()):
                j = self._index[name]
                if self.kinds[j] == UNKNOWN and valued:
                    self._settle(j, NUMBER)
            if self._stale:
                self._prepare()
        if self.largest < math.inf:
            self._look_at(X, names, finite & (np.abs(X) > self.largest))
        if not finite.all():
            self._look_at(X, names, ~finite & learns[:, None])
            X = np.where(finite, X, np.nan)
        known = np.full(len(X), len(self.names), np.int64)
        if as_known:
            # writable and aligned as well: another kind of array would be compiled for anew
            return np.require(X, np.float64, ["C", "A", "W"]), known
        at = [self._index.get(name, -1) for name in names]
        out = np.full((len(X), max(1, len(self.names))), np.nan)
        for c, j in enumerate(at):
            if j >= 0:
                out[:, j] = X[:, c]
        return out, known

    def _look_at(
        self, X: NDArray[np.float64], names: Sequence[Any], odd: NDArray[np.bool_]
    ) -> None:
        """Refuse the first of these odd values, or find that it is none."""
        for r, c in np.argwhere(odd)[:1].tolist():
            try:
                self._number(names[c], X[r, c], learn=True)
            except FeatureError as error:
                raise FeatureError(f"row {r}: {error}") from None

    def holds_categories(self, names: Iterable[Any]) -> bool:
        """Whether any of these columns holds categories, so that numbers need a look each."""
        return any(
            self.kinds[j] == CATEGORY
            for j in (self._index.get(name) for name in names)
            if j is not None
        )

    # ---- taking back, saving

    def begin(self) -> None:
        """From here on `rollback` takes everything back."""
        self._changes.clear()
        self.fresh.clear()
        self._bytes_before = self.bytes

    def rollback(self) -> None:
        """Forget all that came since `begin`: an input was refused as a whole."""
        for what, j in reversed(self._changes):
            if what == "name":
                del self._index[self.names.pop()]
                self.kinds.pop()
                self.categories.pop()
            elif what == "kind":
                self.kinds[j] = UNKNOWN
            else:
                self.categories[j].popitem()
        self.bytes = self._bytes_before
        if self._changes:
            self._changes.clear()
            self._prepare()

    def restore(self, names: Sequence[Any], kinds: Sequence[int], values: Sequence[Any]) -> None:
        """Fill an empty table with the columns of a snapshot, in their order.

        They may take more bytes than a bound that came, or was lowered, later: then nothing is new.
        """
        for name, kind, categories in zip(names, kinds, values, strict=True):
            if plain_name(name) in self._index:
                raise FeatureError(f"feature {name!r} is listed twice")
            known = type(kind) is int and kind in (UNKNOWN, NUMBER, CATEGORY)
            if not known or (categories and kind != CATEGORY):
                raise FeatureError(f"feature {name!r} has the kind {kind!r}")
            codes = {value: code for code, value in enumerate(categories)}
            plain = type(categories) is list and all(type(v) in (str, float) for v in codes)
            if not plain or len(codes) != len(categories) or len(codes) > self.max_categories:
                raise FeatureError(f"feature {name!r} has a damaged list of categories")
            self._index[name] = len(self.names)
            self.names.append(name)
            self.kinds.append(kind)
            self.categories.append(codes)
            self.bytes += kept_bytes(name) + sum(map(kept_bytes, codes))
        if len(self.names) > self.max_features:
            raise CapacityError(f"{len(self.names)} features, over max_features")
        self._prepare()
