"""Standbys: following the owner, and taking over.

Whatever happens, each event ends with one prediction, the same as in an undisturbed run.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from support.memory_log import MemoryBroker, MemoryMember
from support.owner_process import (
    EVENTS,
    Process,
    advance,
    finish,
    follow,
    grown,
    metadata,
    some_events,
)

from streamforest.errors import StorageError
from streamforest.io.log import (
    Joining,
    Standby,
    Stopped,
)
from streamforest.observe.telemetry import (
    Readiness,
    RoleChanged,
)


def test_a_warm_standby_takes_over_from_memory(
    owner: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[bytes]
) -> None:
    standby = Process(owner.member.broker, tmp_path / "own")
    step = advance(owner)

    def last_words() -> None:  # one commit more than the standby has followed
        step()
        owner.die()
        standby.run.states.restored = None  # type: ignore[assignment, method-assign]

    follow(owner, standby, [step, step, last_words])
    assert standby.run.events == 50
    roles = [(e.role, e.events) for e in standby.heard.of(RoleChanged)]
    assert roles == [("standby", 30), ("standby", 40), ("owner", 0)]
    assert standby.in_memory() == owner.in_memory()
    finish(standby, undisturbed)


def test_a_cold_standby_takes_over_from_a_snapshot(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    standby = Process(owner.member.broker, tmp_path)
    grown(owner)
    follow(owner, standby, [])
    assert standby.run.events == 40
    assert not [e for e in standby.heard.of(RoleChanged) if e.role == "standby"]
    finish(standby, undisturbed)


def test_a_standby_before_the_first_commit_begins_the_run(
    process: Process, broker: MemoryBroker, undisturbed: list[bytes]
) -> None:
    broker.owner = MemoryMember(broker)
    process.member.answers = [Standby(), Standby(), process.die]  # type: ignore[list-item]
    process.run.recover()
    finish(process, undisturbed)


def test_an_owner_that_loses_the_log_follows_from_memory_and_comes_back(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    """Everything was committed, so that its state is the log's."""
    other = Process(owner.member.broker, tmp_path / "other")
    state = owner.run.state
    owner.run.states.restored = None  # type: ignore[assignment, method-assign]
    other_states = Process(owner.member.broker, tmp_path).run.states
    other.run.states.restored = other_states.restored  # type: ignore[method-assign]
    owner.die()
    other.run.recover()
    step = advance(other)
    owner.member.answers = [step, step, other.die]  # type: ignore[list-item]
    assert owner.run.consume(max_events=10) == "limit"
    assert owner.run.state is state
    assert owner.run.snapshots.written is not None
    finish(owner, undisturbed)


def test_an_owner_that_loses_the_log_with_events_pending_drops_them(
    owner: Process, undisturbed: list[bytes]
) -> None:
    owner.run._step(None)
    owner.member.answers = [Standby(), Standby()]
    owner.run.recover()
    assert owner.run.events == 20
    assert owner.run.context.pending.predictions == []
    finish(owner, undisturbed)


def test_a_standby_stays_warm_while_the_group_is_being_rebalanced(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    standby = Process(owner.member.broker, tmp_path)
    step = advance(owner)
    follow(owner, standby, [step, Joining, Joining, step, owner.die])  # type: ignore[list-item]
    assert [e.events for e in standby.heard.of(RoleChanged)] == [30, 40, 0]
    finish(standby, undisturbed)


def test_a_standby_that_cannot_follow_says_so_and_takes_over_all_the_same(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    standby = Process(owner.member.broker, tmp_path)
    standby.member.unavailable = 1
    step = advance(owner)
    follow(owner, standby, [step, step, owner.die])
    reasons = [event.reason for event in standby.heard.of(Readiness)]
    assert "away" in reasons
    assert reasons[-1] is None
    assert standby.run.events == 40
    finish(standby, undisturbed)


class Away:
    """Object storage that does not answer a few times."""

    def __init__(self, process: Process, times: int) -> None:
        self._restored, self._left = process.run.states.restored, times
        process.run.states.restored = self  # type: ignore[method-assign, assignment]

    def __call__(self, name: str, expected: str) -> Any:
        if self._left:
            self._left -= 1
            raise StorageError(f"{name}: it does not answer; try again")
        return self._restored(name, expected)


def test_a_standby_that_takes_over_waits_for_object_storage(
    owner: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[bytes]
) -> None:
    monkeypatch.setattr("streamforest.runtime.recovery.ownership._STORAGE_RETRY", 0.0)
    standby = Process(owner.member.broker, tmp_path)
    away = Away(standby, 4)
    follow(owner, standby, [advance(owner), owner.die])
    assert away._left == 0
    reasons = [event.reason for event in standby.heard.of(Readiness)]
    waits = [one for one in reasons if one and one.startswith("recovering: s-000000000020: ")]
    assert len(waits) == 3  # the first answer was missed while it still followed
    assert reasons[-1] is None
    assert standby.run.events == 30
    finish(standby, undisturbed)


def test_a_standby_that_waits_for_object_storage_can_be_stopped(
    owner: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = Process(owner.member.broker, tmp_path)
    Away(standby, 1_000)
    keep_alive = standby.member.keep_alive

    def stopped() -> None:
        standby.stop = True
        keep_alive()

    monkeypatch.setattr(standby.member, "keep_alive", stopped)
    with pytest.raises(Stopped):
        follow(owner, standby, [advance(owner), owner.die])
    assert standby.heard.of(Readiness)[-1].reason is not None


def test_a_process_whose_object_storage_hangs_stays_in_the_group_and_can_be_stopped(
    owner: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(owner)
    owner.die()
    process, never = Process(owner.member.broker, tmp_path), Event()
    process.run.states.restored = lambda *_: never.wait()  # type: ignore[method-assign, assignment, return-value]
    signs: list[None] = []

    def keep_alive() -> None:
        signs.append(None)
        process.stop = len(signs) == 3

    monkeypatch.setattr(process.member, "keep_alive", keep_alive)
    with pytest.raises(Stopped):
        process.run.recover()
    assert len(signs) == 3
    never.set()


def test_a_start_does_not_wait_for_object_storage(
    owner: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: list[bytes]
) -> None:
    grown(owner)
    owner.die()
    started = Process(owner.member.broker, tmp_path)
    Away(started, 1)
    with pytest.raises(StorageError, match="try again"):
        started.run.recover()
    started.die()
    # a process that is at work on other partitions does
    monkeypatch.setattr("streamforest.runtime.recovery.ownership._STORAGE_RETRY", 0.0)
    at_work = Process(owner.member.broker, tmp_path / "other")
    at_work.run.states.restored = started.run.states.restored  # type: ignore[method-assign]
    Away(at_work, 2)
    at_work.run.ownership.at_work = True
    at_work.run.recover()
    finish(at_work, undisturbed)


def test_a_standby_takes_snapshots_of_its_own(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    standby = Process(owner.member.broker, tmp_path / "own", snapshot_events=10)
    step = advance(owner)

    def waits() -> None:
        standby.run.snapshots.wait()
        step()

    follow(owner, standby, [step, step, waits, owner.die])
    standby.run.snapshots.wait()
    assert "s-000000000050" in standby.run.snapshots.names()
    finish(standby, undisturbed)


@pytest.mark.parametrize("committed_only", [True, False])
def test_a_journal_record_that_was_never_committed_is_followed_only_once(
    owner: Process, tmp_path: Path, committed_only: bool
) -> None:
    """Without transactions a record can stand in the journal twice, and the last one counts."""
    broker = owner.member.broker
    standby = Process(broker, tmp_path)
    standby.member.committed_only = committed_only  # type: ignore[misc]

    def again() -> None:
        owner.run._step(None)
        owner.run._commit()
        if not committed_only:
            last = metadata(broker)
            broker.journal.append(broker.journal[-1])
            broker.metadata = msgspec.structs.replace(last, journal=last.journal + 1).text()
            owner.run.recover()

    follow(owner, standby, [again, again, again, owner.die])
    assert standby.run.events == 50
    assert standby.run.consume() == "finished"
    assert len(broker.predictions) == EVENTS


@pytest.mark.parametrize("committed_only", [True, False])
def test_a_standby_knows_whether_the_owner_has_work(
    owner: Process, tmp_path: Path, committed_only: bool
) -> None:
    """With at-least-once delivery too, where the last record of the journal is held back."""
    standby = Process(owner.member.broker, tmp_path)
    standby.member.committed_only = committed_only  # type: ignore[misc]
    step, told = advance(owner), []

    def look() -> None:
        told.append((owner.run.events, standby.run.ownership._follower.unread()))

    def more() -> None:
        owner.member.broker.add(some_events(EVENTS, 1))

    steps = [step, look, step, step, step, look, more, look, owner.die]
    follow(owner, standby, steps)
    assert told == [(30, True), (60, False), (60, True)]
