"""Links lead somewhere, and the site builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from docs.pages import PAGES, TOP

from streamforest.testing.plugin import missing

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    headings = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text)]
    return {heading.strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    here = TOP / page
    text = _FENCED.sub("", here.read_text(encoding="utf-8"))
    broken = []
    for link in _LINK.findall(text):
        name, _, anchor = link.partition("#")
        target = (here.parent / name).resolve() if name else here
        if re.match(r"https?:", link):
            continue
        if not target.exists() or (
            anchor and anchor not in _anchors(_FENCED.sub("", target.read_text(encoding="utf-8")))
        ):
            broken.append(link)
    assert not broken


def test_every_page_is_linked_or_in_the_navigation() -> None:
    navigation = (TOP / ".mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")]
    lost = [page for page in pages if page not in navigation and not page.startswith("runbooks/")]
    assert not lost, "add them to nav in .mkdocs.yml"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        missing("the site needs mkdocs: pip install -e '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", ".mkdocs.yml", "--strict"]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "site")],
        cwd=TOP,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    keys = (tmp_path / "site" / "reference" / "keys.html").read_text(encoding="utf-8")
    assert "bootstrap_servers" in keys
    api = (tmp_path / "site" / "reference" / "api.html").read_text(encoding="utf-8")
    assert "StreamForestClassifier" in api
    assert "learn_one" in api
