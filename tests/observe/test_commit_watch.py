"""Commits that no longer happen while records wait are noticed, on owner and standby."""

from __future__ import annotations

from typing import Any

import pytest

from streamforest.observe.commit_watch import GRACE, CommitWatch
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.telemetry import (
    CommitMade,
    Followed,
    IterationDone,
    LogOpened,
    PendingDropped,
    Readiness,
    RecordsRead,
    RoleChanged,
)

MADE: Any = CommitMade(0.1, [], 0.0, {}, 1, "main", {})
LIMIT = 1.0 + GRACE


class Scene:
    """A watch with a commit interval of a second, a clock and a lag."""

    def __init__(self, role: Any, interval: float | None = 1.0) -> None:
        self.now, self.lag = 100.0, 0
        self.watch = CommitWatch(interval, lambda: {("t", 0): self.lag}, lambda: self.now)
        self.tell(RoleChanged(role, 1, 0, 0))

    def tell(self, event: Any, after: float = 0.0) -> str | None:
        self.now += after
        self.watch.on_event(event)
        return self.watch.why()


def test_what_was_read_and_is_not_committed_is_noticed() -> None:
    scene = Scene("owner")
    assert scene.tell(RecordsRead({})) is None
    assert scene.tell(RecordsRead({}), LIMIT) is None
    scene.now += 0.1  # nothing happens any more: the loop hangs
    assert scene.watch.why() == "no commit for 6 s while records wait"
    assert scene.watch.seconds() == pytest.approx(LIMIT + 0.1)
    assert scene.tell(MADE) is None
    assert scene.tell(IterationDone(), 1e6) is None
    assert scene.watch.seconds() == 0.0


def test_what_another_process_has_committed_waits_no_longer() -> None:
    """It was read here, then learned and committed elsewhere: nothing is left, and nothing comes."""
    scene = Scene("owner")
    assert scene.tell(RecordsRead({})) is None
    assert scene.tell(IterationDone(), LIMIT + 1) is not None
    assert scene.tell(RoleChanged("owner", 1, 0, 0)) is not None, "it may still be pending"
    assert scene.tell(PendingDropped()) is None
    assert scene.tell(IterationDone(), 1e6) is None


def test_what_cannot_be_read_is_noticed() -> None:
    scene = Scene("owner")
    scene.lag = 3
    assert scene.tell(IterationDone()) is None
    assert scene.tell(IterationDone(), LIMIT) is None
    assert "while records wait" in (scene.tell(IterationDone(), 1.0) or "")
    scene.lag = 0
    assert scene.tell(IterationDone(), 1.0) is None
    scene.lag = 3
    for _ in range(20):  # it is read and committed as fast as more comes
        assert scene.tell(IterationDone(), 1.0) is None
        assert scene.tell(MADE) is None


def test_a_standby_notices_an_owner_without_commits() -> None:
    scene = Scene("standby")
    unread = True
    for number in range(10):
        assert scene.tell(Followed(number, lambda: unread), 3.0) is None
    for _ in range(2):
        assert scene.tell(Followed(9, lambda: unread), 3.0) is None
    assert scene.tell(Followed(9, lambda: unread), 3.1) is not None
    told = scene.watch.why() or ""
    assert told.startswith("the owner has made no commit for 6 s")
    unread = False
    assert scene.tell(Followed(9, lambda: unread), 3.0) is None
    unread = True
    scene.tell(Followed(9, lambda: unread), 3.0)
    assert scene.tell(RoleChanged("owner", 1, 0, 0), 100.0) is None  # it has taken over


def test_without_a_commit_interval_nothing_is_promised() -> None:
    scene = Scene("owner", interval=None)
    scene.lag = 3
    for event in (RecordsRead({}), IterationDone(), IterationDone()):
        assert scene.tell(event, 1e6) is None
    assert scene.watch.seconds() == 0.0


def test_metrics_show_how_long_records_wait() -> None:
    metrics = PipelineMetrics("p")
    metrics.on_event(LogOpened(lambda: None, dict, lambda: 7.5))
    metrics.on_event(Readiness(None))
    assert metrics.registry.get_sample_value("streamforest_uncommitted_seconds") == 7.5
