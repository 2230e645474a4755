"""Where a setting comes from: flag over environment over file.

Each layer says `table.key = value`; the last one to name a key wins, and the name of that layer is
kept, so that an error can say where the wrong value stands.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError
from streamforest.text import shown

PREFIX = "STREAMFOREST_"
_MAX_BYTES = 1 << 20
_DEEPEST = 50  # levels of tables and lists
_MOST_BITS = 1_024  # of a whole number


@dataclass
class Settings:
    """Tables of raw values, and for each dotted key the layer that set it."""

    tables: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def set(self, dotted: str, value: Any, origin: str) -> None:
        """Put one value over whatever a lower layer said."""
        *parents, key = dotted.split(".")
        table = self.tables
        for depth, parent in enumerate(parents):
            if parent not in table:  # a table that this layer alone knows of
                self.origins[".".join(parents[: depth + 1])] = origin
            inner = table.setdefault(parent, {})
            if not isinstance(inner, dict):
                above = ".".join(parents[: depth + 1])
                raise ConfigError(
                    f"{dotted} (from {origin}): {above} is a value, not a table; "
                    "remove one of the two"
                )
            table = inner
        table[key] = value
        self.origins[dotted] = origin

    def where(self, dotted: str) -> str:
        """` (from …)` for a value that is not from the file, else nothing."""
        origin = self.origins.get(dotted)
        return f" (from {origin})" if origin else ""


def gather(path: Path, environ: Mapping[str, str], flags: Iterable[str] = ()) -> Settings:
    """Read the pipeline file and lay environment variables and `--set` flags over it.

    `STREAMFOREST_MODEL__N_TREES=20` and `--set model.n_trees=20` both mean `n_trees = 20` in
    `[model]`. Variables without a double underscore are no settings and are left alone.
    """
    return overlay(_read(path), environ, flags)


def overlay(
    tables: dict[str, Any], environ: Mapping[str, str], flags: Iterable[str] = ()
) -> Settings:
    """Environment variables and `--set` flags over the tables of a file."""
    settings = Settings(tables)
    for name in sorted(environ):
        if name.startswith(PREFIX) and "__" in name.removeprefix(PREFIX):
            dotted = name.removeprefix(PREFIX).lower().replace("__", ".")
            settings.set(dotted, parse_value(environ[name]), name)
    for flag in flags:
        dotted, equals, text = flag.partition("=")
        dotted = dotted.strip()
        if not equals or "." not in dotted or not all(dotted.split(".")):
            told = (
                shown(dotted) if equals else "without '='"
            )  # what stands behind it may be a secret
            raise ConfigError(f"--set {told}: expected table.key=value, e.g. model.n_trees=20")
        settings.set(dotted, parse_value(text.strip()), "--set")
    return settings


def parse_value(text: str) -> Any:
    """A TOML value where the text is one, else the text itself, so strings need no quotes.

    >>> parse_value("20"), parse_value("0.1"), parse_value("true"), parse_value("soft")
    (20, 0.1, True, 'soft')
    >>> parse_value("[1, 2]"), parse_value('"20"')
    ([1, 2], '20')
    """
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # not TOML, or a number beyond Python's limit
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; whatever is wrong with it is a ConfigError that names it."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give the path of a pipeline file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError:  # a NUL in it
        raise ConfigError(f"{shown(str(path))}: no file can be called that") from None
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{path}: larger than 1 MB; a pipeline file is a short TOML text")
    try:
        tables = tomllib.loads(raw.decode("utf-8-sig"))  # some editors begin with a byte order mark
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    _check_sizes(path, tables)
    return tables


def _check_sizes(path: Path, tables: dict[str, Any]) -> None:
    """ConfigError for what no key could hold and no message could show."""
    waiting: list[tuple[str, int, Any]] = [("", 0, tables)]
    while waiting:
        name, depth, value = waiting.pop()
        if depth > _DEEPEST:
            raise ConfigError(f"{path}: {name}… is nested deeper than {_DEEPEST} levels")
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise ConfigError(f"{path}: {name}: a whole number of over {_MOST_BITS} bits")
        inner: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
        if isinstance(value, list):
            inner = enumerate(value)
        waiting += [(f"{name}.{key}".lstrip("."), depth + 1, one) for key, one in inner]
