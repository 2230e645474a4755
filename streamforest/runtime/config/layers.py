"""Settings in layers: a flag overrides the environment, and the environment overrides the file.

Each layer says `table.key = value`. The topmost layer that sets a key wins, and its name is kept, so that an
error can say where the wrong value comes from.
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
_MAX_DEPTH = 50  # levels of tables and lists
_MAX_BITS = 1_024  # of a whole number


@dataclass
class Settings:
    """Tables of raw values, and for each dotted key the layer that set it."""

    tables: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def set(self, dotted: str, value: Any, origin: str) -> None:
        """Set one value, over whatever a lower layer has set."""
        *parents, key = dotted.split(".")
        table = self.tables
        for depth, parent in enumerate(parents):
            if parent not in table:  # only this layer has the table
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
        """` (from …)` for a value that is not from the file, else an empty string."""
        origin = self.origins.get(dotted)
        return f" (from {origin})" if origin else ""


def gather(path: Path, environ: Mapping[str, str], flags: Iterable[str] = ()) -> Settings:
    """Read the pipeline file and lay environment variables and `--set` flags over it.

    `STREAMFOREST_MODEL__N_TREES=20` and `--set model.n_trees=20` both mean `n_trees = 20` in
    `[model]`. Variables without a double underscore are not settings and are ignored.
    """
    return overlay(_read(path), environ, flags)


def overlay(
    tables: dict[str, Any], environ: Mapping[str, str], flags: Iterable[str] = ()
) -> Settings:
    """The tables of a file with environment variables and `--set` flags laid over them."""
    settings = Settings(tables)
    for name in sorted(environ):
        if name.startswith(PREFIX) and "__" in name.removeprefix(PREFIX):
            dotted = name.removeprefix(PREFIX).lower().replace("__", ".")
            settings.set(dotted, parse_value(environ[name]), name)
    for flag in flags:
        dotted, equals, text = flag.partition("=")
        dotted = dotted.strip()
        if not equals or "." not in dotted or not all(dotted.split(".")):
            # without "=" the text may be a secret, so it is not repeated
            given = shown(dotted) if equals else "without '='"
            raise ConfigError(f"--set {given}: expected table.key=value, e.g. model.n_trees=20")
        settings.set(dotted, parse_value(text.strip()), "--set")
    return settings


def parse_value(text: str) -> Any:
    """The TOML value that the text is, else the text itself: strings need no quotes.

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
    """The tables of a TOML file; ConfigError if it cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give the path of a pipeline file") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; give the path of a pipeline file"
        ) from error
    except ValueError:  # a NUL in the path
        raise ConfigError(f"{shown(str(path))}: not a valid file name") from None
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{path}: larger than 1 MB; a pipeline file is a short TOML text")
    try:
        tables = tomllib.loads(raw.decode("utf-8-sig"))  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    _check_sizes(path, tables)
    return tables


def _check_sizes(path: Path, tables: dict[str, Any]) -> None:
    """ConfigError for values too large for any key, and too large to show in a message."""
    waiting: list[tuple[str, int, Any]] = [("", 0, tables)]
    while waiting:
        name, depth, value = waiting.pop()
        if depth > _MAX_DEPTH:
            raise ConfigError(f"{path}: {name}… is nested deeper than {_MAX_DEPTH} levels")
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise ConfigError(f"{path}: {name}: a whole number of over {_MAX_BITS} bits")
        inner: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
        if isinstance(value, list):
            inner = enumerate(value)
        waiting += [(f"{name}.{key}".lstrip("."), depth + 1, one) for key, one in inner]
