"""`[features]` of a pipeline: where label and id are in a record, which columns count, and as what.

The rules are the same for a file and for a topic. They are part of what the journal and the snapshot
record: a run is never continued by other ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

LAYOUTS = ("auto", "nested", "flat")
TYPES = ("number", "category", "date", "text", "bool")
MAX_PATTERNS = 1_000
_MAX_TEXT = 500


@dataclass(frozen=True)
class FeatureRules:
    """How a record becomes an event.

    `label`, `id` and `coarse` are names of fields, with dots for nested ones: `payload.after.amount`.
    `ignore`, `only` and the keys of `types` are names or patterns with `*`, `?` and `[…]`.

    >>> rules = FeatureRules(ignore=("debug.*",), types={"zip": "category", "*_at": "date"})
    >>> rules.keeps("amount"), rules.keeps("debug.trace")
    (True, False)
    >>> rules.type_of("zip"), rules.type_of("sent_at"), rules.type_of("amount")
    ('category', 'date', None)
    """

    label: str = "y"
    id: str = "id"
    coarse: str = "coarse"
    layout: str = "auto"
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    separator: str | None = None
    encoding: str | None = None
    derive: bool = True
    """Whether dates and texts become numbers. Not so where a River pipeline gets them: its steps do that."""
    needs_label: bool = True
    """Whether a table must have a column for the label. Not so where nothing is learned."""

    @property
    def chooses(self) -> bool:
        """Whether some columns may be left out."""
        return bool(self.ignore or self.only)

    def keeps(self, name: str) -> bool:
        """Whether a column counts."""
        if self.only and not _matches(name, self.only):
            return False
        return not _matches(name, self.ignore)

    def type_of(self, name: str) -> str | None:
        """The type that is set for a column: by its name, else by the first pattern that fits."""
        exact = self.types.get(name)
        if exact is not None:
            return exact
        return next(
            (kind for pattern, kind in self.types.items() if fnmatchcase(name, pattern)), None
        )

    def settings(self) -> dict[str, Any]:
        """As JSON values, for a snapshot."""
        return {
            "label": self.label,
            "id": self.id,
            "coarse": self.coarse,
            "layout": self.layout,
            "ignore": list(self.ignore),
            "only": list(self.only),
            "types": dict(self.types),
            "separator": self.separator,
            "encoding": self.encoding,
            "derive": self.derive,
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> FeatureRules:
        """The rules that `settings()` described; TypeError or ValueError if it describes none."""
        values = {**FeatureRules().settings(), **settings}
        for key in ("ignore", "only"):
            values[key] = tuple(str(pattern) for pattern in values[key])
        values["types"] = {str(name): str(kind) for name, kind in dict(values["types"]).items()}
        for key in ("label", "id", "coarse", "layout"):
            if type(values[key]) is not str:
                raise TypeError(f"features.{key} is no text")
        for key in ("separator", "encoding"):
            if values[key] is not None and type(values[key]) is not str:
                raise TypeError(f"features.{key} is no text")
        if values["layout"] not in LAYOUTS or not {*values["types"].values()} <= {*TYPES}:
            raise ValueError("a layout or a type that does not exist")
        return cls(**values)

    def text(self) -> str:
        """In one line, for the journal: recovery must apply the same rules."""
        default = FeatureRules().settings()
        changed = {key: value for key, value in self.settings().items() if value != default[key]}
        text = json.dumps(changed, ensure_ascii=True, separators=(",", ":"))
        if len(text) > _MAX_TEXT:  # it stands in every journal record
            text = f"#{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
        return f"features={text}"


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
