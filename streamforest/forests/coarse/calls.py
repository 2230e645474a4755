"""Keywords of River's methods that have to do with categories."""

from __future__ import annotations

from typing import Any

from streamforest.errors import InputError
from streamforest.forests.core.parameters import check_choice

LEVELS = ("fine", "coarse")


def wants_coarse(level: Any) -> bool:
    """Whether categories are asked for; refuses what is no level."""
    check_choice("level", level, LEVELS)
    return bool(level == "coarse")


def refuse_keywords(keywords: dict[str, Any]) -> None:
    """Refuse keywords that no forest knows: a misspelt one would be dropped in silence."""
    if keywords:
        name = min(keywords)
        raise InputError(f"unknown keyword {name!r}: use 'level' ('fine' or 'coarse') or 'coarse'")
