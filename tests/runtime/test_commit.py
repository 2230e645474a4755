"""A commit whose outcome nobody knows: what the log says decides, and it may be another's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamforest import ConsistentForestClassifier
from streamforest.io.log import Commit, CommitInDoubt, Transaction
from streamforest.runtime.checkpoint.commit import Committer, Pending, Superseded
from streamforest.runtime.checkpoint.journal import CommitMetadata, read_commit_metadata
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import Snapshot, SnapshotFolder
from streamforest.runtime.processing.models import limits_of

PLACE = 40


class DoubtfulLog:
    """Loses its answers; `becomes` says what is the last commit then, from the text that was sent."""

    def __init__(self, becomes: Callable[[str], str | None]) -> None:
        self.becomes = becomes
        self.sent: list[str] = []
        self.told: str | None = None
        self.loses = True

    def commit(self, transaction: Transaction) -> None:
        self.sent.append(transaction.metadata(PLACE + len(self.sent)))
        if self.loses:
            self.told = self.becomes(self.sent[-1])
            self.loses = False
            raise CommitInDoubt("no answer")
        self.told = self.sent[-1]

    def attach(self, meanwhile: Callable[[], None] = lambda: None) -> Commit:
        return Commit(self.told, {("t", 0): 0})

    def seek(self, positions: Mapping[Any, int]) -> None:
        """Wherever."""

    def read_back(self) -> str | None:
        return self.told


def committer(log: Any, folder: Path) -> tuple[Committer, RunState]:
    made = Committer(log, SnapshotFolder(folder))
    made.named = Snapshot("s-000000000000", "", -1, 0, 0, 0.0)
    made.standing = CommitMetadata(25, 30, 0, "s-000000000000", "", -1)
    models = {"main": ConsistentForestClassifier(n_trees=1)}
    state = RunState.new(models, limits_of(list(models.values()), 1, 100, ""), None)
    state.positions = {("t", 0): 21}
    state.events = 21
    return made, state


def test_a_commit_that_was_made_is_not_made_again(tmp_path: Path) -> None:
    log = DoubtfulLog(lambda sent: sent)
    made, state = committer(log, tmp_path)
    made.commit(state, Pending())
    assert len(log.sent) == 1
    assert made.standing == read_commit_metadata(log.sent[0])


def test_a_commit_that_was_not_made_is_sent_again(tmp_path: Path) -> None:
    made, state = committer(log := DoubtfulLog(lambda sent: None), tmp_path)
    before = made.standing
    assert before is not None
    log.becomes = lambda sent: before.text()
    made.commit(state, Pending())
    assert len(log.sent) == 2
    assert made.standing == read_commit_metadata(log.sent[1])


@pytest.mark.parametrize("events", [21, 42])
def test_a_commit_of_the_same_number_may_be_anothers(tmp_path: Path, events: int) -> None:
    """A standby took over, made the very next commit and died; as many events, in another order."""

    def anothers(sent: str) -> str:
        ours = read_commit_metadata(sent)
        return msgspec.structs.replace(ours, journal=ours.journal + 3, events=events).text()

    made, state = committer(log := DoubtfulLog(anothers), tmp_path)
    with pytest.raises(Superseded) as raised:
        made.commit(state, Pending())
    assert raised.value.found.metadata == log.told
