"""`streamforest report`: one page that needs nothing else, whatever stands in the predictions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.browser import Watched, chromium

from streamforest.cli import root
from streamforest.io.codec.events import Prediction, encode_prediction

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>@DATA@"
MATHS = "$\\frac{1$"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments))


@pytest.fixture(scope="module")
def predictions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Predictions with strangers' labels: markup, maths, control characters, a text of a megabyte."""
    names = ["plain", HOSTILE, MATHS, "red\x1b[31m\u202e\n", "x" * 1_000_000]
    file = tmp_path_factory.mktemp("report") / "p.jsonl"
    with file.open("wb") as out:
        for i in range(400):
            truth = names[i % (1 + 4 * i // 400)] if i != 399 else names[4]
            label = None if i == 0 else truth if i % 5 else "plain"
            top = [] if label is None else [(label, 0.8)]
            p = 0.7 if i % 2 else 0.9
            one = Prediction(i, label, p if label else 0.0, truth, top, "t", 0, i, i)
            out.write(encode_prediction(one) + b"\n")
    return file


def test_the_page_is_one_file_with_escaped_names(predictions: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = invoke("report", str(predictions), "--out", str(out), "--title", HOSTILE)
    assert done.exit_code == 0, done.output
    assert f"page: {out}" in done.output
    text = out.read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert "<img" not in text
    assert text.count("<script") == text.count("</script>") == 4
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", text)
    assert re.findall(r"@[A-Z]+@", text.split('id="data"')[0]) == [
        "@DATA@"
    ]  # in the title, escaped


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 380)])
def test_a_browser_shows_it_and_runs_nothing_of_it(
    predictions: Path, tmp_path: Path, browser: Any, scheme: str, width: int
) -> None:
    out = tmp_path / "page.html"
    assert invoke("report", str(predictions), "--out", str(out), "--title", "t").exit_code == 0
    seen = Watched(browser, width, scheme)
    page = seen.page
    page.goto(out.as_uri())
    page.wait_for_selector("#c-accuracy canvas")
    assert (seen.logged, seen.asked) == ([], [out.as_uri()])
    assert page.title() == "t"
    cells = page.locator("#classes tr").all_inner_texts()
    assert any("</script><script>" in one for one in cells)
    assert any(MATHS in one for one in cells)
    assert page.locator("#matrix tr").count() == 5
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.locator("#c-calibration .nodata").is_visible()
    page.focus("#c-calibration .plot")
    page.keyboard.press("Home")
    assert "probability 70.0" in seen.text("#spoken")
    assert seen.serious() == []
    seen.close()


def test_numbers_and_pictures(predictions: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    done = invoke("report", str(predictions), "--json", "--png", str(folder))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["events"] == 400
    for name in ("accuracy", "confusion", "calibration"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert not predictions.with_suffix(".html").exists()


def test_a_limit_is_told(predictions: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.html"
    done = invoke("report", str(predictions), "--limit", "100", "--out", str(out), "--json")
    assert json.loads(done.output)["remarks"] == [
        "Only the first 100 predictions were read (--limit)."
    ]
    assert "--limit" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "nowhere: no such file or folder; give a run folder"),
        (("nowhere.toml",), "nowhere.toml"),
        ((".",), "holds no predictions"),
        (("t", "--bootstrap-servers", "nonsense"), "nonsense"),
        (("nowhere", "--set", "run.folder=x"), "--set: for a pipeline file only"),
    ],
)
def test_a_mistake_gets_one_line(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("report", *arguments)
    assert done.exit_code == 2
    assert words in done.output
