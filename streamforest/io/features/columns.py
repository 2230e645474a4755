"""The columns of a stream: what each holds, decided once and kept; and its values as numbers or categories.

The first value of a column that is not missing decides its type, unless the pipeline sets it:

    number      a number; a text that is a decimal, such as "3.50"
    bool        true or false; it stays a number
    date        an ISO date or time; a number of 13 digits or more that is a time since 1970
    text        four words or more, or a list of texts: counted by word
    category    any other text

A later value that does not fit counts as missing. It is counted, with an example. All of this is a function
of the records in the journal's order, and part of the snapshot: how records are cut into batches changes
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from streamforest.io.codec.events import Bounds
from streamforest.io.features import dates, text
from streamforest.io.features.parsing import DECIMAL, FALSE, TRUE, is_absent, is_decimal, time_of
from streamforest.io.features.profile import Profile
from streamforest.io.features.rules import TYPES, FeatureRules
from streamforest.jsonable import count, rows
from streamforest.text import printable, shown

NUMBER, CATEGORY, DATE, TEXT, BOOL, IGNORED = (
    "number",
    "category",
    "date",
    "text",
    "bool",
    "ignored",
)
_PLAIN = frozenset((NUMBER, BOOL, CATEGORY))
_MISFIT: Any = object()
_MAX_EXAMPLE = 60
_MAX_WARNINGS = 20  # columns whose first value that does not fit is logged
_PLURALS = {NUMBER: "numbers", CATEGORY: "categories", DATE: "dates", BOOL: "true or false"}


@dataclass
class Column:
    """What one column holds, and how many of its values did not fit."""

    kind: str
    first: int | None = None
    """Of dates: the first one, in microseconds since 1970; None before it."""
    timed: bool = False
    """Of dates: whether the first one had a time of day."""
    misfits: int = 0
    example: str = ""
    """The first value that did not fit."""
    names: tuple[str, ...] = ()
    """The columns that a date or a text becomes."""


@dataclass(frozen=True)
class ColumnReport:
    """What a column was taken for, for people."""

    name: str
    type: str
    declared: bool
    features: int
    misfits: int
    example: str


class Columns:
    """The columns met so far.

    >>> columns = Columns(FeatureRules(), Bounds(), 100)
    >>> columns.convert({"price": "3.50", "colour": "red", "paid": True, "gap": None})
    {'price': 3.5, 'colour': 'red', 'paid': True, 'gap': None}
    >>> columns.convert({"price": "cheap", "colour": 7})
    {'price': None, 'colour': '7'}
    >>> [(c.name, c.type, c.misfits, c.example) for c in columns.describe()]
    [('price', 'number', 1, "'cheap'"), ('colour', 'category', 0, ''), ('paid', 'bool', 0, '')]
    """

    def __init__(self, rules: FeatureRules, bounds: Bounds, max_columns: int) -> None:
        self._rules, self._max = rules, max_columns
        self._max_length = bounds.max_text_length
        self._columns: dict[Any, Column] = {}
        self.untyped = 0
        """Values of columns beyond `max_columns`: taken as they are."""
        self.warnings: list[str] = []
        """To be logged, once each; whoever logs them empties the list."""
        self._with_misfits = 0  # columns that have any
        self._changing = 0  # columns whose values are not taken as they are
        self.profile: Profile | None = Profile()
        """Of the first rows; None once they were looked at."""
        self.passes_numbers = False
        """Whether a row of known columns, all of them numbers, may skip `convert`: it changes nothing."""

    def __len__(self) -> int:
        return len(self._columns)

    def convert(self, x: Any) -> Any:
        """The features of an event, as numbers and categories; None where one is missing."""
        if type(x) is list:
            return x if not self._rules.chooses else self._chosen(x)
        out: dict[Any, Any] = {}
        known, profile = self._columns.get, self.profile
        for name, value in x.items():
            column = known(name)
            if column is None:
                column = self._new(name, value)
                if column is None:
                    if value is None or is_absent(value):
                        out[name] = None
                    elif len(self._columns) >= self._max:
                        out[name] = self._untyped(value)
                    continue
            kind = column.kind
            if value is None or kind == IGNORED:
                if kind in _PLAIN:
                    out[name] = None
                continue
            if profile is not None:
                profile.note(name, value)
            if kind in (NUMBER, BOOL):
                if type(value) is not float:
                    value = _number(value, kind)
            elif kind == CATEGORY:
                if type(value) is not str or len(value) > self._max_length:
                    value = self._category(value)
            elif kind == DATE:
                self._date(name, column, value, out)
                continue
            else:
                out.update(zip(column.names, text.counts_of(value)))
                continue
            if value is _MISFIT:
                self._misfit(name, column, x[name])
                value = None
            out[name] = value
        return out

    def _chosen(self, vector: list[float]) -> dict[int, float]:
        """The numbers of an array whose places count."""
        return {i: value for i, value in enumerate(vector) if self._rules.keeps(str(i))}

    def _new(self, name: Any, value: Any) -> Column | None:
        """A column that is met for the first time; None as long as it has no value."""
        if len(self._columns) >= self._max:
            return None
        if not self._rules.keeps(name):
            column = Column(IGNORED)
        elif value is None:
            return None
        else:
            kind = self._rules.type_of(name) or type_by_value(name, value)
            if (
                kind in (DATE, TEXT)
                and not self._rules.derive
                and self._rules.type_of(name) is None
            ):
                kind = NUMBER if isinstance(value, int | float | Decimal) else CATEGORY
            if kind is None:
                return None
            column = Column(kind)
            if kind == TEXT:
                column.names = text.names_of(name)
        self._add(name, column)
        return column

    def _add(self, name: Any, column: Column) -> None:
        self._columns[name] = column
        self._changing += column.kind not in _PLAIN
        self._settle()

    def _settle(self) -> None:
        """Note whether plain rows may skip `convert`. It is asked for each new column: no look at all."""
        self.passes_numbers = (
            self.profile is None and not self._rules.chooses and not self._changing
        )

    def _untyped(self, value: Any) -> Any:
        """A value of a column for which there is no room: the limits of the models decide about it."""
        self.untyped += 1
        if isinstance(value, bool | float):
            return value
        value = (
            _number(value, NUMBER) if isinstance(value, int | Decimal) else self._category(value)
        )
        return None if value is _MISFIT else value

    def _date(self, name: str, column: Column, value: Any, out: dict[Any, Any]) -> None:
        at = time_of(value)
        if at is None:
            if not is_absent(value):
                self._misfit(name, column, value)
            return
        if column.first is None:
            column.first, column.timed = at
            column.names = dates.names_of(name, column.timed)
        out.update(zip(column.names, dates.numbers_of(at[0], column.first, column.timed)))

    def _category(self, value: Any) -> Any:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            if not math.isfinite(value):
                return None
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        if isinstance(value, date | time):
            return value.isoformat()
        if isinstance(value, bytes):
            value = value.decode(errors="backslashreplace")
        elif isinstance(value, list):
            value = " ".join(map(str, value))
        elif not isinstance(value, str):
            value = str(value)
        return value if len(value) <= self._max_length else _MISFIT

    def _misfit(self, name: Any, column: Column, value: Any) -> None:
        if not column.misfits:
            column.example = shown(value, _MAX_EXAMPLE)
            self._with_misfits += 1
            if self._with_misfits <= _MAX_WARNINGS:
                what = (
                    "is longer than a category may be" if column.kind == CATEGORY else "is not one"
                )
                self.warnings.append(
                    f"column {shown(name)} holds {_PLURALS[column.kind]}; {column.example} {what}, and "
                    "counts as missing, as will any other such value; to change the type: "
                    f"features.types = {{{shown(name)} = …}}"
                )
        column.misfits += 1

    def misfits(self) -> int:
        """How many values did not fit their columns."""
        return sum(column.misfits for column in self._columns.values())

    def describe(self) -> list[ColumnReport]:
        """What each column was taken for, in the order they were met."""
        return [
            ColumnReport(
                str(name),
                column.kind,
                self._rules.type_of(name) is not None,
                0 if column.kind == IGNORED else len(column.names) or 1,
                column.misfits,
                column.example,
            )
            for name, column in self._columns.items()
        ]

    def finish_profile(self) -> list[str]:
        """Warnings about the first rows; from here on they are no longer watched."""
        if self.profile is None:
            return []
        warnings = self.profile.warnings({name: c.kind for name, c in self._columns.items()})
        self.profile = None
        self._settle()
        return warnings

    # ---- snapshots

    def state(self) -> dict[str, Any]:
        """Plain data, a function of the records alone."""
        return {
            "columns": [
                [name, c.kind, c.first, c.timed, c.misfits, c.example]
                for name, c in self._columns.items()
            ],
            "untyped": self.untyped,
            "profile": None if self.profile is None else self.profile.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state()` described; ValueError if it describes nothing."""
        for name, kind, first, timed, misfits, example in rows(state["columns"], "columns", 6):
            if type(name) is not str or name in self._columns or kind not in (*TYPES, IGNORED):
                raise ValueError(f"column {shown(name)} twice, or of no type")
            whole = first is None or type(first) is int
            if not whole or type(timed) is not bool or type(example) is not str:
                raise ValueError(f"column {shown(name)} is damaged")
            column = Column(kind, first, timed, count(misfits, "misfits"), printable(example, 80))
            if first is not None:
                column.names = dates.names_of(name, timed)
            elif kind == TEXT:
                column.names = text.names_of(name)
            self._add(name, column)
            self._with_misfits += column.misfits > 0
        if len(self._columns) > self._max:
            raise ValueError(f"{len(self._columns)} columns, over {self._max}")
        self.untyped = count(state["untyped"], "untyped")
        profile = state["profile"]
        self.profile = None if profile is None else Profile.from_state(profile)
        self._settle()

    def adopt(self, names: list[Any], numeric: list[bool]) -> None:
        """Columns of a run that was begun before types were kept: they stay what they are."""
        for name, is_number in zip(names, numeric):
            if type(name) is str and len(self._columns) < self._max:
                self._add(name, Column(NUMBER if is_number else CATEGORY))
        self.profile = None
        self._settle()


def type_by_value(name: str, value: Any) -> str | None:
    """The type that a column's first value gives it; None if the value says nothing."""
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int | float | Decimal):
        if not math.isfinite(value):
            return NUMBER
        return DATE if dates.is_time(str(name), float(value)) else NUMBER
    if is_absent(value):
        return None
    if isinstance(value, str):
        if is_decimal(value):
            return NUMBER
        if dates.parse(value) is not None:
            return DATE
        return TEXT if text.is_text(value) else CATEGORY
    if isinstance(value, date):
        return DATE
    if isinstance(value, timedelta):
        return NUMBER
    return TEXT if isinstance(value, list) else CATEGORY


def _number(value: Any, kind: str) -> Any:
    """A value of a column of numbers as a number, None if it says that it is missing."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | Decimal):
        try:
            return float(value)
        except (OverflowError, ValueError):
            return _MISFIT
    if isinstance(value, str):
        if is_absent(value):
            return None
        text = value.strip()
        if DECIMAL.fullmatch(text) is not None:
            number = float(text)
            return number if math.isfinite(number) else _MISFIT
        word = text.lower()
        if kind == BOOL and (word in TRUE or word in FALSE):
            return word in TRUE
        return _MISFIT
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if isinstance(value, float) else _MISFIT
