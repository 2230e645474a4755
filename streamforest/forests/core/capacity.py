"""The columns of a model: names, kinds and categories, and what there was no room for.

Each feature name owns a column from the learned event that brings it first. A table has bounds: how many
names, how many categories in a column, how many bytes all of them. What happens beyond them is
`on_capacity`:

- `"error"`: the event is refused with a `CapacityError`.
- `"degrade"`: learning goes on. The first categories of a column keep their codes; all later ones share one
  code, *other*. If over half of the column's learned rows had brought a new value by then (an id, a date),
  the column counts as missing from then on, for ever. A feature beyond the bound is left out.

These decisions are made by learned events alone, in their order, so they are the same for any batch size.
They stand in a snapshot, and they are counted and told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import CapacityError, FeatureError
from streamforest.forests.core.parameters import MAX_TEXT_BYTES
from streamforest.forests.core.values import Name, kept_name_bytes, name_order, plain_name
from streamforest.text import kept_bytes, shown

UNKNOWN, NUMBER, CATEGORY = range(3)
"""What a column holds; its first value decides."""

OPEN, OTHER, DROPPED = range(3)
"""What becomes of a new category: it gets a code, it is the code "other", the column counts as missing."""

CATEGORY_COLUMNS = 8
_NOT_COUNTED = 1 << 40
"""Rows that a column is taken to have had where an older snapshot does not say: no id for certain."""
_LARGEST = 1 << 53


class Columns:
    """Names, kinds and categories, each in the order learned; `rollback` forgets all since `begin`."""

    def __init__(
        self,
        max_features: int,
        max_categories: int,
        max_bytes: int = MAX_TEXT_BYTES,
        on_capacity: str = "degrade",
        absent: str = "missing",
    ) -> None:
        self.max_features = max_features
        self.max_categories = max_categories
        self.max_bytes = max_bytes
        self.on_capacity = on_capacity
        self.zero = absent == "zero"
        self.bytes = 0  # of all names and categories
        self.names: list[Name] = []
        self.kinds: list[int] = []
        self.categories: list[dict[Any, int]] = []
        self.seen: list[int] = []  # learned rows with a category, as long as the column is open
        self.room: list[int] = []  # OPEN, OTHER or DROPPED
        self.over: list[int] = []  # learned rows whose category had no room
        self.closed = False  # whether a name found no room: then no name is new any more
        self.left_out = 0  # values of features that have no column, in learned rows
        self.notices: list[
            str
        ] = []  # what is to be told; whoever learns tells it and clears the list
        self.fresh: list[tuple[int, int]] = []  # (row, column) of new categories since `begin`
        self._index: dict[Name, int] = {}
        self._changes: list[tuple[str, int]] = []  # since `begin`, for `rollback`
        self._before = (0, False, 0)  # bytes, closed and left_out at `begin`
        self._counts: dict[int, tuple[int, int]] = {}  # seen and over of columns counted since then
        # by column, with room to grow: a wide table must not be gone through for each new name
        self._absent = np.full(16, np.nan)
        self.category_flags = np.zeros(
            16, np.uint8
        )  # longer than `categorical`, and seldom another array
        self._not_numbers = 0  # columns that do not hold numbers
        self._named = 0  # columns whose name is not an int
        self._categories = 0  # columns that hold categories
        self._refresh()

    def knows_any(self, names: Iterable[Name]) -> bool:
        """Whether one of these is the name of a column."""
        return any(name in self._index for name in names)

    def __len__(self) -> int:
        return len(self.names)

    def _refresh(self) -> None:
        """What follows from the columns; called once for all that an event changes."""
        self._stale = False
        self.categorical: NDArray[np.uint8] = self.category_flags[: len(self.names)]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_stale"], state["categorical"]
        return {**state, "_changes": [], "fresh": [], "_counts": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._refresh()

    @property
    def plain(self) -> bool:
        """Whether there are columns, and all hold numbers."""
        return self._not_numbers == 0 and bool(self.names)

    @property
    def positional(self) -> bool:
        """Whether all names are ints, as the columns of an array are."""
        return self._named == 0

    def n_codes(self, j: int) -> int:
        """How many codes the categories of a column have, "other" included."""
        return len(self.categories[j]) + (self.room[j] == OTHER)

    def absent_values(self, begin: int, end: int) -> NDArray[np.float64]:
        """What an event that lacks these columns has in them: NaN, or 0 in numbers if it is to."""
        out = np.full(end - begin, np.nan)
        have = self._absent[begin : min(end, len(self.names))]
        out[: len(have)] = have
        return out

    # ---- new columns

    def require_cells(self, classes: int, most: int) -> None:
        """Refuse what would make more than `most` means, one for each class and column.

        A category has eight columns in a forest that keeps class means.
        """
        columns = len(self.names) + (CATEGORY_COLUMNS - 1) * self._categories
        if classes * columns > most:
            raise CapacityError(
                f"{classes:,} classes with {columns:,} columns are over the {most:,} class means that this "
                "forest keeps: hash or leave out features, filter labels, or use a stream forest"
            )

    def require_room(self, size: int) -> None:
        """Refuse an event with more features than there may ever be, before anything is done with it."""
        if size > self.max_features and self.on_capacity == "error":
            raise CapacityError(
                f"an event of {size:,} features, over max_features={self.max_features}: raise "
                "max_features or drop such features"
            )

    def add_names(self, names: Sequence[Any], rows: int = 1) -> None:
        """New columns that so many learned rows have, sorted by (type name, value)."""
        if not names:
            return
        room = 0 if self.closed else max(0, self.max_features - len(self.names))
        if self.on_capacity == "error" and len(names) > room:  # before anything is done with them
            over = names[room]
            raise CapacityError(
                f"feature {shown(over)} would be number {self.max_features + 1}, over "
                f"max_features={self.max_features}: raise max_features or drop such features"
            )
        new = list(dict.fromkeys(map(plain_name, names)))
        new.sort(key=name_order)
        for at, name in enumerate(new):
            if at == room or not self._grow(kept_name_bytes(name), f"feature {shown(name)}"):
                self._leave_out(name, rows * (len(new) - at))
                break
            self._add(name)
            self._changes.append(("name", len(self.names) - 1))
        self._stale = True

    def _leave_out(self, name: Name, values: int) -> None:
        if not self.closed:
            bound = f"max_features={self.max_features:,}"
            if len(self.names) < self.max_features:
                bound = f"max_text_bytes={self.max_bytes:,}"
            self.notices.append(
                f"feature {shown(name)} and all other new ones are left out: {len(self.names):,} features "
                f"are as many as {bound} has room for; raise it, or drop features"
            )
        self.closed = True
        self.left_out += values

    def _add(self, name: Name) -> None:
        n = len(self.names)
        if n == len(self._absent):
            self._absent = np.concatenate([self._absent, np.full(n, np.nan)])
            self.category_flags = np.concatenate([self.category_flags, np.zeros(n, np.uint8)])
        self._index[name] = n
        self.names.append(name)
        self.kinds.append(UNKNOWN)
        self.categories.append({})
        for counter in (self.seen, self.room, self.over):
            counter.append(0)
        self._not_numbers += 1
        self._named += type(name) is not int

    def _grow(self, by: int, what: str) -> bool:
        """Count bytes of text that are new, if there is room for them."""
        if self.bytes + by > self.max_bytes:
            if self.on_capacity == "error":
                raise CapacityError(
                    f"{what} would make {self.bytes + by:,} bytes of names and categories, over "
                    f"max_text_bytes={self.max_bytes:,}: raise max_text_bytes or group the values"
                )
            return False
        self.bytes += by
        return True

    def settle(self, j: int, kind: int) -> None:
        """The first value of a column decides what it holds."""
        self._set_kind(j, kind)
        self._changes.append(("kind", j))
        self._stale = True

    def _set_kind(self, j: int, kind: int) -> None:
        self._not_numbers += (self.kinds[j] == NUMBER) - (kind == NUMBER)
        self._categories += (kind == CATEGORY) - (self.kinds[j] == CATEGORY)
        self.kinds[j] = kind
        self.category_flags[j] = kind == CATEGORY
        self._absent[j] = 0.0 if kind == NUMBER and self.zero else np.nan

    # ---- categories

    def code_of(self, j: int, value: Any, learn: bool) -> float | None:
        """The code of a category, NaN if its column was dropped, None if no learned event had it.

        With `learn` the category gets a code, or is what there is no room for.
        """
        if learn:
            self._counts.setdefault(j, (self.seen[j], self.over[j]))
        room = self.room[j]
        if room == DROPPED:
            self.over[j] += learn
            return np.nan
        codes = self.categories[j]
        code = codes.get(value)
        if code is None and room == OPEN:
            return self._new_category(j, value) if learn else None
        if learn:
            if room == OPEN:
                self.seen[j] += 1
            else:
                self.over[j] += code is None
        return float(len(codes) if code is None else code)

    def _new_category(self, j: int, value: Any) -> float:
        codes = self.categories[j]
        full = len(codes) >= self.max_categories
        if full and self.on_capacity == "error":
            raise CapacityError(
                f"feature {self.names[j]!r} has over max_categories={self.max_categories} values, "
                f"the next being {shown(value)}: raise max_categories or group the values"
            )
        what = f"feature {self.names[j]!r} = {shown(value)}"
        fits = not full and self._grow(kept_bytes(value), what)
        if self.kinds[j] == UNKNOWN:
            self.settle(j, CATEGORY)
        self.seen[j] += 1
        if not fits:
            return self._close(j)
        codes[value] = len(codes)
        self._changes.append(("category", j))
        return float(len(codes) - 1)

    def _close(self, j: int) -> float:
        """A category has no room: what becomes of it, and of all others from now on."""
        kept = len(self.categories[j])
        dropped = 2 * (kept + 1) > self.seen[j]
        self.room[j] = DROPPED if dropped else OTHER
        self.over[j] += 1
        self._changes.append(("closed", j))
        bound = f"max_categories={self.max_categories:,}"
        if kept < self.max_categories:
            bound = f"max_text_bytes={self.max_bytes:,}"
        became = (
            "over half of its rows brought a new one, so it counts as missing from now on (is it an id?)"
            if dropped
            else 'all others count as one from now on, "other"'
        )
        self.notices.append(
            f"feature {shown(self.names[j])} has more categories than the {kept:,} that {bound} has "
            f"room for: {became}; raise it, group the values, or leave the feature out"
        )
        return np.nan if dropped else float(kept)

    # ---- taking back, saving

    def begin(self) -> None:
        """From here on `rollback` takes everything back."""
        self._changes.clear()
        self._counts.clear()
        self.fresh.clear()
        self._before = self.bytes, self.closed, self.left_out

    def rollback(self) -> None:
        """Forget all that came since `begin`: an input was refused as a whole."""
        for j, (seen, over) in self._counts.items():
            self.seen[j], self.over[j] = seen, over
        for what, j in reversed(self._changes):
            if what == "name":
                self._set_kind(j, UNKNOWN)
                self._not_numbers -= 1
                name = self.names.pop()
                self._named -= type(name) is not int
                del self._index[name]
                for column in (self.kinds, self.categories, self.seen, self.room, self.over):
                    column.pop()
            elif what == "kind":
                self._set_kind(j, UNKNOWN)
            elif what == "closed":
                self.room[j] = OPEN
            else:
                self.categories[j].popitem()
        self.bytes, self.closed, self.left_out = self._before
        self._counts.clear()
        self.notices.clear()
        if self._changes:
            self._changes.clear()
            self._refresh()

    def capacity(self) -> dict[str, Any]:
        """What there was no room for: rows by column that count as other or missing, values left out."""
        over = {
            what: {
                name: n for name, room, n in zip(self.names, self.room, self.over) if room == kind
            }
            for what, kind in (("other", OTHER), ("dropped", DROPPED))
        }
        return {**over, "left_out": self.left_out}

    def totals(self) -> dict[str, int]:
        """The same in four numbers."""
        return {
            "columns_with_other": self.room.count(OTHER),
            "columns_dropped": self.room.count(DROPPED),
            "events_beyond": sum(self.over),
            "values_left_out": self.left_out,
        }

    def state(self) -> dict[str, Any]:
        """The columns as plain data."""
        told: dict[str, Any] = {
            "names": list(self.names),
            "kinds": list(self.kinds),
            "categories": [list(codes) for codes in self.categories],
        }
        full = [[j, self.room[j], self.over[j]] for j in range(len(self.names)) if self.room[j]]
        if any(self.seen) or full or self.closed:
            told["capacity"] = {
                "seen": list(self.seen),
                "full": full,
                "closed": self.closed,
                "left_out": self.left_out,
            }
        return told

    def restore(self, state: Any) -> None:
        """Fill an empty table with the columns of a snapshot, in their order.

        They may take more bytes than a bound that came, or was lowered, later: then nothing is new.
        """
        columns = state["names"], state["kinds"], state["categories"]
        for name, kind, categories in zip(*columns, strict=True):
            name = plain_name(tuple(name) if type(name) is list else name)
            if name in self._index:
                raise FeatureError(f"feature {name!r} is listed twice")
            known = type(kind) is int and kind in (UNKNOWN, NUMBER, CATEGORY)
            if not known or (categories and kind != CATEGORY):
                raise FeatureError(f"feature {name!r} has the kind {kind!r}")
            codes = {value: code for code, value in enumerate(categories)}
            plain = type(categories) is list and all(type(v) in (str, float) for v in codes)
            if not plain or len(codes) != len(categories) or len(codes) > self.max_categories:
                raise FeatureError(f"feature {name!r} has a damaged list of categories")
            self._add(name)
            self._set_kind(len(self.names) - 1, kind)
            self.categories[-1] = codes
            self.seen[-1] = _NOT_COUNTED if codes else 0
            self.bytes += kept_name_bytes(name) + sum(map(kept_bytes, codes))
        if len(self.names) > self.max_features:
            raise CapacityError(f"{len(self.names)} features, over max_features")
        if "capacity" in state:
            self._restore_capacity(state["capacity"])
        self._refresh()

    def _restore_capacity(self, state: Any) -> None:
        seen, full, left_out = state["seen"], state["full"], state["left_out"]
        counts = [left_out, *seen, *(over for _, _, over in full)]
        whole = all(type(n) is int and 0 <= n <= _LARGEST for n in counts)
        if not whole or len(seen) != len(self.names) or type(state["closed"]) is not bool:
            raise FeatureError("what there was no room for is damaged")
        self.seen, self.closed, self.left_out = list(seen), state["closed"], left_out
        for j, room, over in full:
            known = type(j) is int and 0 <= j < len(self.names) and type(room) is int
            if not known or self.kinds[j] != CATEGORY or room not in (OTHER, DROPPED):
                raise FeatureError("what there was no room for is damaged")
            self.room[j], self.over[j] = room, over
