"""The page's history: what it keeps, how it stays bounded, and what a broken file does to it (nothing)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamforest.observe.history import History
from streamforest.observe.page.points import MAX_POINTS, Point, columns
from streamforest.observe.telemetry import (
    BatchAdvanced,
    ClassesBorn,
    CommitMade,
    EventRefused,
    IterationDone,
    LogOpened,
    NoveltyMeasured,
    RecordsRead,
    RoleChanged,
    RowsRead,
)


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's log reaches pytest, whatever a command in the same process has set up."""
    package = logging.getLogger("streamforest")
    monkeypatch.setattr(package, "propagate", True)
    monkeypatch.setattr(package, "level", logging.NOTSET)
    logging.getLogger("streamforest").manager._clear_cache()  # type: ignore[attr-defined]


def read(records: int) -> RowsRead:
    """A poll with so many events."""
    return RowsRead(records, 0, records, records, 0, 0)


def advance(history: History, truth: list[Any], predicted: list[Any], learned: int) -> None:
    """A batch as the loop reports it; `learned` after it."""
    known = {one.label for one in history.kept.classes.followed}
    born = [label for label in dict.fromkeys(truth) if label not in known and label is not None]
    if born:
        history.on_event(ClassesBorn(born, learned - len(truth)))
    history.on_event(BatchAdvanced("main", truth, predicted, 0.01, 0, learned))
    history.on_event(read(len(truth)))
    history.on_event(IterationDone())


def test_a_class_is_followed_from_its_birth_on() -> None:
    history = History()
    truth = ["a"] * 300 + ["b"] * 300
    guess = ["a"] * 300 + ["a"] * 10 + ["b"] * 290
    for i in range(0, 600, 100):
        advance(history, truth[i : i + 100], guess[i : i + 100], i + 100)
    b = history.kept.classes.followed[-1]
    assert (b.label, b.learned, b.events, b.correct) == ("b", 300, 300, 290)
    assert b.ages == [(10, 0), (40, 40), (150, 150), (100, 100)]
    assert b.reached == 26, "16 of the last 20"
    assert history.kept.classes.total == 2
    assert history.confused(5) == ([("b", "a", 10, 300)], 600)


def test_accuracy_of_every_model_and_of_no_change() -> None:
    history = History()
    history.on_event(BatchAdvanced("main", ["a", "a", None, "b"], ["a", "b", "a", "b"], 0.1, 0, 3))
    history.on_event(BatchAdvanced("shade", ["a", "a", None, "b"], ["a", "a", "a", "b"], 0.1, 0, 3))
    history.close()
    history.on_event(read(4))
    history.close()
    (point,) = history.kept.whole.points
    assert point.models == {"main": (3, 2), "shade": (3, 3)}
    assert (point.labelled, point.no_change) == (3, 1)


def test_lag_in_seconds_is_the_age_of_the_last_record_where_more_wait() -> None:
    history, lags = History(), {("t", 0): 5, ("t", 1): 0}
    history.on_event(LogOpened(lambda: None, lambda: lags))
    history.on_event(RecordsRead({("t", 0): 1_000, ("t", 1): 1_000}))
    history.on_event(CommitMade(0.1, [], 0.0, {}))
    assert history.lags["t", 1] == (0, 0.0)
    records, seconds = history.lags["t", 0]
    assert records == 5
    assert seconds is not None
    assert seconds > 1e9
    del lags["t", 0]
    history.on_event(CommitMade(0.1, [], 0.0, {}))
    assert set(history.lags) == {("t", 1)}, "a partition that left is forgotten"


def test_novelty_leaves_out_what_has_no_measure() -> None:
    history = History()
    history.on_event(NoveltyMeasured("main", np.array([1.0, np.inf, 2.0, 5.0])))
    history.on_event(read(4))
    history.close()
    (point,) = history.kept.whole.points
    assert (point.measured, point.far, point.novelty) == (3, 1, 6.0)


def test_everything_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    history = History(path)
    for i in range(2_000):
        advance(history, [f"class {i}"] * 100, ["?"] * 100, 100 * (i + 1))
        history.on_event(EventRefused(f"reason {i}", f"t-0, offset {i}", "m" * 10_000))
    history.close()
    kept = history.kept
    assert len(kept.whole.points) <= MAX_POINTS
    assert sum(point.labelled for point in kept.whole.points) == 200_000
    assert (kept.classes.total, len(kept.classes.births), len(kept.classes.followed)) == (
        2_000,
        200,
        12,
    )
    assert len(kept.letters) == 20
    assert len(kept.reasons) == 40
    assert path.stat().st_size < 200_000


def test_strangers_texts_are_made_printable() -> None:
    history = History()
    advance(history, ["x\x1b[31m\n"] * 2, ["\u202ey", "\x00"], 2)
    history.on_event(EventRefused("invalid", f"t-0, offset {3}", "bad\x1b]0;title\x07"))
    pairs = [text for pair in history.confused(3)[0] for text in pair[:2]]
    assert all(text.isprintable() for text in (history.kept.letters[0].message, *pairs))
    assert history.kept.classes.followed[0].name == "x\\x1b[31m\\n"


def test_it_outlives_a_restart_and_what_comes_again_is_not_counted_twice(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    history = History(path)
    for i in range(10):
        advance(history, [f"c{i}"] * 100, [f"c{i}"] * 100, 100 * (i + 1))
    history.close()
    again = History(path)
    assert [point.learned for point in again.kept.whole.points] == list(range(100, 1_001, 100))
    assert sum(point.labelled for point in again.window) == 500 + 500, "minutes are merged points"
    again.on_event(RoleChanged("owner", 1))
    # the last commit was at event 700: 300 events come again
    again.on_event(ClassesBorn(["c7"], 700))
    again.on_event(BatchAdvanced("main", ["c7"] * 100, ["c7"] * 100, 0.1, 0, 800))
    assert [one.name for one in again.kept.classes.births] == [f"c{i}" for i in range(8)]
    assert again.kept.classes.total == 8
    again.on_event(IterationDone())
    learned = [point.learned for point in again.kept.whole.points]
    assert learned == list(range(100, 801, 100))


def test_a_label_that_no_file_can_hold_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    history = History(path)
    odd = ["\ud800", "x" * 100_000, 2**80, "fine", True, 2.5]
    advance(history, odd * 20, odd * 20, 120)
    history.close()
    again = History(path)
    kept = [one.label for one in again.kept.classes.followed]
    assert kept == odd[2:]
    assert [type(label) for label in kept] == [int, str, bool, float]
    assert len(again.kept.classes.births) == 6
    assert all(one.name.isprintable() for one in again.kept.classes.births)


def test_a_class_that_is_born_again_after_a_lost_commit_is_one_class(tmp_path: Path) -> None:
    history = History(tmp_path / "h.json")
    advance(history, ["a"] * 100, ["a"] * 100, 100)
    history.on_event(ClassesBorn(["a"], 0))
    history.close()
    assert [one.label for one in History(tmp_path / "h.json").kept.classes.followed] == ["a"]


def test_a_standby_leaves_the_file_to_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    standby = History(path)
    standby.on_event(RoleChanged("standby", 0, 5, 1))
    owner = History(path)
    owner.on_event(RoleChanged("owner", 1))
    advance(owner, ["a"] * 100, ["a"] * 100, 100)
    owner.close()
    standby.close()
    assert standby.kept.whole.points == []
    standby.on_event(RoleChanged("owner", 1))
    assert [point.learned for point in standby.kept.whole.points] == [100]


def written(tmp_path: Path) -> Any:
    history = History(tmp_path / "h.json")
    for i in range(5):
        advance(history, ["a"] * 100, ["a"] * 100, 100 * (i + 1))
    history.close()
    return json.loads((tmp_path / "h.json").read_bytes())


FORGED: dict[str, Any] = {
    "another version": lambda kept: kept | {"version": 2},
    "a field too many": lambda kept: kept | {"surplus": 1},
    "a negative count": lambda kept: kept | {"commits": -1},
    "no list": lambda kept: kept | {"letters": "x"},
    "too many points": lambda kept: (
        kept | {"whole": kept["whole"] | {"points": [{"at": 1.0}] * 301}}
    ),
    "no step": lambda kept: kept | {"minutes": {"step": 0.0, "points": []}},
    "an age too few": lambda kept: (
        kept
        | {
            "classes": {
                "births": [],
                "total": 1,
                "followed": [{"label": "a", "at": 1.0, "learned": 1, "events": 900, "ages": []}],
            }
        }
    ),
    "a label twice": lambda kept: (
        kept
        | {
            "classes": {
                "births": [],
                "total": 1,
                "followed": [{"label": "a", "at": 1.0, "learned": 1}] * 2,
            }
        }
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_costs_the_history_and_nothing_else(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    forged = json.dumps(FORGED[name](written(tmp_path)))
    (tmp_path / "h.json").write_text(forged, encoding="utf-8")
    refused_quietly(tmp_path / "h.json", caplog)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff" * 20, b"[" * 100_000, b" " * 9_000_000, b"7"])
def test_a_broken_file_costs_the_history_and_nothing_else(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "h.json").write_bytes(data)
    refused_quietly(tmp_path / "h.json", caplog)


def refused_quietly(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        history = History(path)
    assert "the page starts without a history" in caplog.text
    advance(history, ["a"] * 300, ["a"] * 300, 300)
    history.close()
    assert History(path).kept.whole.points[-1].learned == 300


def test_a_folder_that_cannot_be_written_costs_the_file_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    history = History(tmp_path / "file" / "h.json")
    advance(history, ["a"] * 100, ["a"] * 100, 100)
    with caplog.at_level(logging.WARNING):
        history.close()
    assert "history is not kept" in caplog.text
    assert history.kept.whole.points[-1].learned == 100


def test_no_line_is_drawn_over_a_time_in_which_nothing_ran() -> None:
    points = [Point(at=at, seconds=2.0, events=4) for at in (2.0, 4.0, 100.0)]
    drawn = columns(points, 2.0)
    assert drawn["at"] == [2.0, 4.0, 6.0, 100.0]
    assert drawn["rate"] == [2.0, 2.0, None, 2.0]
