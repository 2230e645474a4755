"""What a standby holds while it follows a journal that is far ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamforest import ConsistentForestClassifier
from streamforest.io.log import Log
from streamforest.runtime.checkpoint.journal import CommitMetadata, Entry
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.processing.adapters import wrap_model
from streamforest.runtime.processing.models import limits_of
from streamforest.runtime.recovery.replayer import Replayer
from streamforest.runtime.recovery.standby import Follower


class LongJournal:
    """A log whose journal has been going on for long: each look brings as much as a poll can."""

    committed_only = True

    def __init__(self, entries: int, at_once: int, events: int) -> None:
        self.left = [
            (i, msgspec.json.encode(Entry(i, i * events, (i + 1) * events))) for i in range(entries)
        ]
        self.at_once = at_once

    def tail(self, since: int) -> LongJournal:
        return self

    def poll(self) -> list[tuple[int, bytes]]:
        found, self.left = self.left[: self.at_once], self.left[self.at_once :]
        return found

    def reader(self, positions: Any) -> LongJournal:
        return self

    def close(self) -> None:
        """Nothing is held."""

    @property
    def log(self) -> Log:
        return Log(self, self, self, self)  # type: ignore[arg-type]


def replayer(kind: type[Replayer], log: Log, folder: Path) -> Replayer:
    return kind(log, SnapshotFolder(folder), None, None)  # type: ignore[arg-type]


def test_a_standby_far_behind_reads_no_further_than_it_can_follow(
    tmp_path: Path,
) -> None:
    class Jumping(Replayer):
        def apply(self, state: RunState, entry: Entry, *rest: Any) -> None:
            state.events = entry.events

    models = {"main": wrap_model(ConsistentForestClassifier(n_trees=1))}
    limits = limits_of(list(models.values()), 1, 100, "")
    followed: list[int] = []
    log = LongJournal(10_000, 2_000, 500).log
    follower = Follower(log, replayer(Jumping, log, tmp_path), followed.append)
    follower.begin(
        RunState.new(models, limits), CommitMetadata(-1, -1, 0, "s-000000000000", "", -1)
    )
    most = 0
    while len(followed) < 10_000:
        before = len(followed)
        follower.step()
        assert len(followed) > before, follower.trouble
        most = max(most, len(follower._queue))
    assert followed == list(range(10_000))
    assert most <= 3_000


def test_a_standby_of_another_rule_follows_nothing_and_is_ready_to_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an update: the owner has the old version, who stands by the new one."""
    models = {"main": wrap_model(ConsistentForestClassifier(n_trees=1))}
    limits = limits_of(list(models.values()), 1, 100, "")
    journal = LongJournal(0, 10, 0)
    journal.left = [(0, msgspec.json.encode(Entry(0, 0, 5, rules=limits.rules)))]
    log = journal.log
    follower = Follower(
        log, replayer(Replayer, log, tmp_path), lambda place: pytest.fail("it was followed")
    )
    follower.begin(
        RunState.new(models, limits), CommitMetadata(-1, -1, 0, "s-000000000000", "", -1)
    )
    monkeypatch.setattr(ConsistentForestClassifier, "learning_revision", 2)
    follower.step()
    assert follower.trouble is None
    assert follower.state is None
    assert follower.hand_over(CommitMetadata(0, 0, 5, "s-000000000000", "", -1)) is None
    follower.step()  # not tried again at once, which would load a snapshot each time
    assert follower.state is None
