"""What a stranger reads: the pages, what they show in fences, and the commands among it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).parents[2]
PAGES = [
    "README.md",
    ".github/CONTRIBUTING.md",
    *(path.relative_to(TOP).as_posix() for path in sorted((TOP / "docs").rglob("*.md"))),
]
"""Every page, by its path from the top of the repository."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s+#\s.*$")
_NAMES = "(?:streamforest|python|pip|docker|mkdocs)"
_IN_COMMENT = re.compile(rf"^#  {{3,}}({_NAMES} .*)$")
_IN_DOCSTRING = re.compile(rf"^(?: {{4}}(?={_NAMES})|(?=python pipelines/))({_NAMES} .*)$")


class Command(NamedTuple):
    """A command as it is written, and the file that shows it."""

    file: str
    line: str


def fences(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    return _FENCE.findall((TOP / page).read_text(encoding="utf-8"))


def _joined(text: str) -> list[str]:
    """Lines without comments; what ends in a backslash goes on in the next line."""
    lines = [_COMMENT.sub("", line) for line in text.splitlines()]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [line for line in whole.splitlines() if line and not line.startswith("#")]


def commands() -> list[Command]:
    """Every command of a page's `sh` fences, and of the comments in `pipelines/` and `docker/`, in order."""
    found = [
        Command(page, line)
        for page in PAGES
        for language, text in fences(page)
        if language == "sh"
        for line in _joined(text)
    ]
    for path in [*(TOP / "pipelines").glob("*"), *(TOP / "docker").rglob("*"), TOP / ".mkdocs.yml"]:
        if not path.is_file():
            continue
        pattern = _IN_DOCSTRING if path.suffix == ".py" else _IN_COMMENT
        shown: list[str] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if shown and shown[-1].endswith("\\"):
                shown.append(line.lstrip("# "))
            elif match := pattern.match(line):
                shown.append(match[1])
        name = path.relative_to(TOP).as_posix()
        found += [Command(name, line) for line in _joined("\n".join(shown))]
    return sorted(dict.fromkeys(found), key=lambda command: _rank(command.file))


def _rank(name: str) -> tuple[int, str]:
    """A reader starts with the README and the quick start; so do the runs that later pages look at."""
    first = ("README.md", "docs/quick-start.md", "docs/uses/consumer.md")
    return (first.index(name) if name in first else len(first), name)
