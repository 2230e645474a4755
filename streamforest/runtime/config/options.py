"""The allowed values of a key of a pipeline file, and the check of a table against them.

Nothing here raises: problems are collected in a list, so that all of them are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from streamforest.runtime.config.layers import Settings
from streamforest.text import nearest as nearest
from streamforest.text import shown

REQUIRED: Any = object()
"""The default of an option that must be set."""


@dataclass(frozen=True)
class Option:
    """A key: what it accepts (as a test and in words) and its default."""

    accepts: Callable[[Any], bool]
    expected: str
    default: Any = REQUIRED
    shown: bool = True
    """Whether a message may repeat a wrong value. One that may be a secret is not repeated."""
    words: tuple[str, ...] = ()
    """All values, where they are few words: the nearest to a wrong one is suggested."""

    def remedy(self, value: Any) -> str:
        """What to write instead of a wrong value.

        >>> option = Option(lambda value: False, "one of 'topic', 'partition'", words=("topic", "partition"))
        >>> option.remedy("partitoin")
        "expected one of 'topic', 'partition'; did you mean partition?"
        """
        near = nearest(str(value), list(self.words)) if self.words else ""
        return f"expected {self.expected}" + (f"; {near}" if near.startswith("did") else "")


def whole(least: int, most: int, default: Any = REQUIRED) -> Option:
    """A whole number within bounds (`true` is not one).

    >>> whole(1, 10).accepts(10), whole(1, 10).accepts(True), whole(1, 10).expected
    (True, False, 'a whole number from 1 to 10')
    """
    return Option(
        lambda value: type(value) is int and least <= value <= most,
        f"a whole number from {least:,} to {most:,}",
        default,
    )


def choice(*values: str, default: Any) -> Option:
    """One of several words."""
    listed = ", ".join(repr(value) for value in values)
    return Option(lambda value: value in values, f"one of {listed}", default, words=values)


def text(expected: str, default: Any = None) -> Option:
    """Any text that is not empty and contains no NUL."""
    return Option(
        lambda value: isinstance(value, str) and value.strip() != "" and "\0" not in value,
        expected,
        default,
    )


def is_url(value: Any) -> bool:
    """Whether a value is an HTTP address without a login in it."""
    if not isinstance(value, str):
        return False
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


class Checker:
    """Reads tables of `Settings` and collects what is wrong with them in `problems`."""

    def __init__(
        self, settings: Settings, tables: Mapping[str, Mapping[str, Option]] | None = None
    ) -> None:
        """`tables` are all keys by table: for a key in the wrong one, the right one is named."""
        self.settings = settings
        self._tables = tables or {}
        self.problems: list[str] = []

    def problem(self, dotted: str, value: Any, remedy: str) -> None:
        """Note a wrong value with its key, its origin and the remedy."""
        text = f"{dotted} = {shown(value)}{self.settings.where(dotted)}: {remedy}"
        if text not in self.problems:  # a table may be read more than once
            self.problems.append(text)

    def hidden(self, dotted: str, remedy: str) -> None:
        """Note a wrong value that must not be repeated."""
        self.problems.append(f"{dotted}{self.settings.where(dotted)}: {remedy}")

    def unknown(self, dotted: str, valid: list[str]) -> None:
        """Note a key or table that does not exist."""
        *parents, name = dotted.split(".")
        kind = f"unknown key in [{'.'.join(parents)}]" if parents else "unknown table"
        where = self.settings.where(dotted)
        remedy = nearest(name, valid)
        owners = [f"[{table}]" for table, keys in self._tables.items() if name in keys]
        if owners and not remedy.startswith("did"):
            remedy = f"it belongs to {' or '.join(owners)}"
        self.problems.append(f"{dotted}{where}: {kind}; {remedy}")

    def table(self, dotted: str) -> dict[str, Any]:
        """The raw table called `dotted`; empty if there is none."""
        here: Any = self.settings.tables
        for name in dotted.split("."):
            here = here.get(name, {}) if isinstance(here, dict) else {}
        if not isinstance(here, dict):
            self.problem(dotted, here, f"expected a table, [{dotted}]")
            return {}
        return here

    def read(
        self, dotted: str, options: Mapping[str, Option], also: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The checked values of a table; a wrong one is noted and replaced by its default.

        `also` names further keys that are read elsewhere.
        """
        raw = self.table(dotted)
        for key in raw:
            if key not in options and key not in also:
                self.unknown(f"{dotted}.{key}", [*options, *also])
        values = {}
        for key, option in options.items():
            values[key] = None if option.default is REQUIRED else option.default
            if key in raw and option.accepts(raw[key]):
                values[key] = raw[key]
            elif key in raw and not option.shown:
                self.hidden(f"{dotted}.{key}", f"expected {option.expected} (value not shown)")
            elif key in raw:
                self.problem(f"{dotted}.{key}", raw[key], option.remedy(raw[key]))
            elif option.default is REQUIRED:
                self.problems.append(f"{dotted}.{key}: missing; give {option.expected}")
        return values
