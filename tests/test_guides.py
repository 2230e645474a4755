"""The guides name modules and folders: each must exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
_PATH = re.compile(r"`([A-Za-z0-9_./]+(?:\.py|/))`")
_STANDS_FOR_SEVERAL = re.compile(r"NAME|FAMILY")


@pytest.mark.parametrize(
    "guide", ["docs/architecture.md", "docs/limits.md", ".github/CONTRIBUTING.md", "README.md"]
)
def test_every_module_that_a_guide_names_exists(guide: str) -> None:
    there = [
        f"/{path.relative_to(TOP).as_posix()}{'/' if path.is_dir() else ''}"
        for room in ("streamforest", "tests", "docker", "pipelines")
        for path in (TOP / room, *(TOP / room).rglob("*"))
    ]
    named = _PATH.findall((TOP / guide).read_text(encoding="utf-8"))
    assert named
    missing = [
        name
        for name in named
        if not _STANDS_FOR_SEVERAL.search(name) and not any(p.endswith(f"/{name}") for p in there)
    ]
    assert not missing
