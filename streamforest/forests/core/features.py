"""Feature dicts, frames and arrays as rows of float64.

Each feature name owns a column (see `columns.py`); names that come together get their columns sorted by
(type name, value), so that the order of a dict never matters. NaN in a row means: this event lacks the
feature.

What a value may be:
- numbers of any kind, bools included: as float64;
- `None`, pandas' `NA` and `NaT`: missing. So is a key that is absent, unless the model has `absent="zero"`:
  then a number that an event does not mention is 0, as in a bag of words;
- NaN and infinities: refused when learning, since they are nearly always a fault upstream, or taken as
  missing with `nonfinite="missing"`. Where an event is only predicted they count as missing: no harm is
  done, and River's own scalers give NaN for features they have not met. NaN in a frame is missing: that is
  how pandas writes a gap;
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
from streamforest.forests.core.capacity import CATEGORY, NUMBER, UNKNOWN, Columns
from streamforest.forests.core.parameters import MAX_TEXT_BYTES
from streamforest.forests.core.sparsity import SparsityWatch
from streamforest.forests.core.values import as_float, is_missing
from streamforest.text import shown

UNSEEN = -1.0  # code of a category that no learned event had: equal to none
_NUMBERS = (float, int)
_PLAIN = 1e300  # a number up to here is finite as a float, whatever it is


class FeatureTable(Columns):
    """The columns of a model, and how events become their rows.

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
        on_capacity: str = "degrade",
        absent: str = "missing",
    ) -> None:
        super().__init__(max_features, max_categories, max_bytes, on_capacity, absent)
        self.nonfinite = nonfinite
        self.largest = math.inf  # absolute value that a number may have
        self._watch = SparsityWatch(absent)

    def _refresh(self) -> None:
        super()._refresh()
        self._fast: Any = None  # made when it is first needed: it goes through all columns

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_fast")
        state.pop("_pack", None)
        return state

    # ---- one event

    def pack(self, x: Mapping[Any, Any], into: bytearray, at: int) -> bool:
        """Write an event to its row if it is plain: all columns present, all of them finite numbers."""
        names = self.names
        if self._not_numbers or not names:
            return False
        try:
            if len(x) != len(names):
                return False
            if self._fast is None:
                self._fast = itemgetter(*names)
                self._pack = Struct(f"{len(names)}d").pack_into
            values = self._fast(x)
            if len(names) == 1:
                values = (values,)
            # one sum instead of a look at each: refused are NaN, infinities, too large and odd kinds
            if self.largest < math.inf:
                if not math.hypot(*values) <= self.largest:
                    return False
            else:
                total = sum(values)
                if not (isinstance(total, (float, int)) and math.isfinite(total)):
                    return False
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
        index = self._index
        if learn:
            self.require_room(len(x))
            new = [(name, value) for name, value in items if name not in index]
            if self.zero:  # a column is there from its first value on: before that it is 0
                new = [(name, value) for name, value in new if self._has_value(value)]
            self.add_names([name for name, _ in new])
            self.notices += self._watch.see(len(x), len(self.names))
        out = self._absent[: len(self.names)].copy()
        kinds, bound = self.kinds, min(self.largest, _PLAIN)
        for name, value in items:
            j = index.get(name)
            if j is not None:
                if type(value) in _NUMBERS and kinds[j] == NUMBER and -bound <= value <= bound:
                    out[j] = value  # no more to be asked of it
                else:
                    out[j] = self._value(j, value, learn)
            elif not is_missing(value) and not isinstance(value, str):
                self._number(
                    name, value, learn
                )  # unknown to the model, but not let through unchecked
        if self._stale:
            self._refresh()
        return out

    def _has_value(self, value: Any) -> bool:
        """Whether a value is there, be it one that will be refused."""
        if is_missing(value):
            return False
        if isinstance(value, str):
            return True
        try:
            return self.nonfinite == "error" or math.isfinite(as_float(value))
        except (TypeError, ValueError, ArithmeticError):
            return True

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
            self.settle(j, NUMBER)
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
            'or set nonfinite="missing" (in a pipeline under [model])'
        )

    def _category(self, j: int, value: Any, learn: bool) -> float:
        if not isinstance(value, str):
            value = self._number(self.names[j], value, learn)
            if value != value:
                return math.nan
        code = self.code_of(j, value, learn)
        return UNSEEN if code is None else code

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
                self.fresh += [(r, j) for what, j in new if what in ("category", "closed")]
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
        self, X: NDArray[Any], names: Sequence[Any], learns: NDArray[np.bool_], frame: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Rows of a batch of numbers whose columns have these names; in a `frame` NaN is missing."""
        with np.errstate(over="ignore", invalid="ignore"):  # wider numbers, signalling NaNs
            X = np.asarray(X, np.float64)
        finite = np.isfinite(X)
        as_known = self.plain and list(names) == self.names
        if not as_known and learns.any():
            new = [name for name in names if name not in self._index]
            if new and self.zero and not finite.all():  # columns begin with their first value
                return self.rows(_records(X, names, frame), learns.tolist())
            self.add_names(new, int(np.count_nonzero(learns)))
            for name, valued in zip(names, finite[learns].any(axis=0).tolist()):
                j = self._index.get(name)
                if j is not None and self.kinds[j] == UNKNOWN and valued:
                    self.settle(j, NUMBER)
            if self._stale:
                self._refresh()
        if self.largest < math.inf:
            self._look_at(X, names, finite & (np.abs(X) > self.largest))
        if not finite.all():
            odd = np.isinf(X) if frame else ~finite
            self._look_at(X, names, odd & learns[:, None])
            X = np.where(finite, X, np.nan)
        known = np.full(len(X), len(self.names), np.int64)
        if as_known:
            # writable and aligned as well: another kind of array would be compiled for anew
            return np.require(X, np.float64, ["C", "A", "W"]), known
        at = [self._index.get(name, -1) for name in names]
        out = np.tile(self.absent_values(0, max(1, len(self.names))), (len(X), 1))
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


def _records(X: NDArray[np.float64], names: Sequence[Any], frame: bool) -> list[dict[Any, Any]]:
    rows = X.tolist()
    if frame:
        rows = [[None if value != value else value for value in row] for row in rows]
    return [dict(zip(names, row)) for row in rows]
