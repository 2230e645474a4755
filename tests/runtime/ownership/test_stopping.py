"""A stop, in every phase.

Whatever happens, each event ends with one prediction, the same as in an undisturbed run.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from support.memory_log import MemoryBroker, MemoryMember
from support.owner_process import (
    Process,
    advance,
    follow,
    grown,
    metadata,
)

from streamforest.io.log import (
    CommitInDoubt,
    Joining,
    Owned,
    Stopped,
    Transaction,
)
from streamforest.runtime.recovery import ownership
from streamforest.runtime.recovery.ownership import Phase


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1_000.0]
    clock = SimpleNamespace(monotonic=lambda: time[0])
    monkeypatch.setattr(ownership, "time", clock)
    return time


def test_a_stop_while_joining_for_the_first_time_is_immediate(process: Process) -> None:
    def stop() -> Joining:
        process.stop = True
        return Joining()

    process.member.answers = [Joining(), stop]
    with pytest.raises(Stopped):
        process.run.recover()
    assert process.member.asked == 2


def test_a_stop_while_following_is_immediate(owner: Process, tmp_path: Path) -> None:
    standby = Process(owner.member.broker, tmp_path)

    def stop() -> None:
        standby.stop = True

    with pytest.raises(Stopped):
        follow(owner, standby, [advance(owner), stop])
    assert standby.phase is Phase.FOLLOWING


def test_a_stop_while_replaying_is_immediate(owner: Process, tmp_path: Path) -> None:
    grown(owner)
    again = Process(owner.member.broker, tmp_path)

    def stop() -> Owned:
        again.stop = True
        again.run.ownership._check_stop = lambda: None  # type: ignore[method-assign]
        return again.member.owned()

    again.member.answers = [stop]
    with pytest.raises(Stopped, match="recovering"):
        again.run.recover()
    assert again.phase is Phase.REPLAYING


def test_a_stop_while_owning_commits_and_takes_a_snapshot(owner: Process) -> None:
    owner.run._step(None)
    assert owner.run.consume(stop=lambda: True) == "stopped"
    last = metadata(owner.member.broker)
    assert (last.events, last.snapshot) == (30, "s-000000000030")


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_stop_waits_a_while_for_a_log_that_has_to_take_what_is_pending(
    owner: Process, now: list[float], comes_back: bool
) -> None:
    owner.run._step(None)
    owner.stop = True

    def waits() -> Joining:
        now[0] += 6
        return Joining()

    owner.member.fates = ["not made"]
    owner.member.answers = [waits] * (3 if comes_back else 10)
    assert owner.run.consume(stop=lambda: True) == "stopped"
    assert metadata(owner.member.broker).events == (30 if comes_back else 20)
    assert len(owner.member.answers) == (0 if comes_back else 6)


def test_a_stop_ends_commits_that_fail_for_ever(owner: Process, now: list[float]) -> None:
    owner.run._step(None)
    owner.stop = True

    def fails(transaction: Transaction) -> None:
        now[0] += 6

    owner.member.fates = [fails] * 10
    assert owner.run.consume(stop=lambda: True) == "stopped"
    assert len(owner.member.fates) == 5
    assert metadata(owner.member.broker).events == 20


def test_an_attempt_of_nobody_is_no_commit() -> None:
    member = MemoryMember(MemoryBroker())
    with pytest.raises(CommitInDoubt):
        member.commit(Transaction(0, [], [], b"", {}, str))
