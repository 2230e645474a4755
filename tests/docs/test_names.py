"""The pages name modules and folders: each must exist."""

from __future__ import annotations

import re

import pytest
from docs.pages import PAGES, TOP

_PATH = re.compile(r"`([A-Za-z0-9_./]+(?:\.py|\.toml|/))`")
_STANDS_FOR_SEVERAL = re.compile(
    r"NAME|FAMILY|my\.toml|orders\.toml|pipeline\.toml|^runs/|^\.site/|^schemas/|^/"
)
_ROOMS = ("streamforest", "tests", "docker", "pipelines", "docs")


def _named(page: str) -> list[str]:
    found = _PATH.findall((TOP / page).read_text(encoding="utf-8"))
    return [name for name in found if not _STANDS_FOR_SEVERAL.search(name)]


@pytest.mark.parametrize("page", [page for page in PAGES if _named(page)])
def test_every_module_that_a_page_names_exists(page: str) -> None:
    there = [
        f"/{path.relative_to(TOP).as_posix()}{'/' if path.is_dir() else ''}"
        for room in _ROOMS
        for path in (TOP / room, *(TOP / room).rglob("*"))
    ]
    there += [f"/{path.name}" for path in TOP.iterdir()]
    assert [n for n in _named(page) if not any(path.endswith(f"/{n}") for path in there)] == []


def test_the_architecture_names_modules() -> None:
    assert len(_named("docs/architecture.md")) > 50
