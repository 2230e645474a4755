"""Owner and standby: every transition of the machine, over a log in memory.

Whatever happens, each event ends with one prediction, the same as in an undisturbed run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support.memory_log import MemoryBroker, MemoryMember

from streamforest import ConsistentForestClassifier
from streamforest.errors import RecoveryError
from streamforest.io.codec.decoders import by_value
from streamforest.io.codec.events import decoder
from streamforest.io.log import (
    CommitInDoubt,
    Joining,
    LogUnavailable,
    Owned,
    Partition,
    Released,
    Standby,
    Stopped,
    Transaction,
)
from streamforest.observe.telemetry import (
    CommitDoubted,
    CommitMade,
    Readiness,
    RoleChanged,
    TelemetryEvent,
)
from streamforest.runtime.checkpoint.journal import read_commit_metadata
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.processing.loop import Run
from streamforest.runtime.processing.models import limits_of, wrap_model
from streamforest.runtime.processing.schedule import Settings
from streamforest.runtime.recovery import ownership
from streamforest.runtime.recovery.ownership import Phase

EVENTS = 60
BATCH = 10


class Heard(list[TelemetryEvent]):
    """A listener that remembers everything."""

    on_event = list.append

    def of(self, kind: type) -> list[Any]:
        return [event for event in self if isinstance(event, kind)]


class Process:
    """A run with its member of the log."""

    def __init__(self, broker: MemoryBroker, folder: Path, **settings: Any) -> None:
        self.member = MemoryMember(broker)
        self.heard = Heard()
        self.stop = False
        models = {"main": wrap_model(ConsistentForestClassifier(n_trees=1, seed=0))}
        settings = {
            "batch": BATCH,
            "commit_events": BATCH,
            "commit_seconds": None,
            "snapshot_seconds": None,
            "drain": True,
            **settings,
        }
        self.run = Run(
            self.member.log,
            by_value(decoder()),
            models,
            limits_of(list(models.values()), 1, 100, ""),
            SnapshotFolder(folder),
            Settings(**settings),
            {"topic": "events"},
            self.heard,
            lambda: self.stop,
        )

    @property
    def phase(self) -> Phase:
        return self.run.ownership.phase

    def die(self) -> None:
        """As after kill -9: nothing is said to anybody, and the log is free."""
        self.member.broker.owner = None

    def in_memory(self) -> bytes:
        """The models and positions, to be compared."""
        state = self.run.state
        model = state.models["main"]
        posteriors = model.forest.predict_proba_many([{"a": 1.0, "b": 0.5}])
        return json.dumps([state.plain({}), model.n_learned, str(posteriors)]).encode()


def some_events(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"x": {"a": i % 7 / 7, "b": i % 5 / 5}, "y": "odd" if i % 7 % 2 else "even"}
        for i in range(first, first + count)
    ]


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    made.add(some_events(0, EVENTS))
    return made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    broker = MemoryBroker()
    broker.add(some_events(0, EVENTS))
    process = Process(broker, tmp_path_factory.mktemp("undisturbed"))
    process.run.recover()
    assert process.run.consume() == "finished"
    assert len(broker.predictions) == EVENTS
    return broker.predictions


@pytest.fixture
def process(broker: MemoryBroker, tmp_path: Path) -> Process:
    return Process(broker, tmp_path)


@pytest.fixture
def owner(process: Process) -> Process:
    """A process that has committed 20 events."""
    process.run.recover()
    process.run.consume(max_events=20)
    return process


def finish(process: Process, expected: list[bytes]) -> None:
    assert process.run.consume() == "finished"
    assert process.phase is Phase.OWNING
    assert process.member.broker.predictions == expected


def metadata(broker: MemoryBroker) -> Any:
    assert broker.metadata is not None
    return read_commit_metadata(broker.metadata)


# ---- joining


def test_a_first_start_commits_where_the_partitions_begin(
    process: Process, undisturbed: list[bytes]
) -> None:
    process.member.answers = [Joining(), Joining()]
    process.run.recover()
    broker = process.member.broker
    assert process.member.asked == 3
    assert (metadata(broker).commit, metadata(broker).events) == (0, 0)
    assert json.loads(broker.journal[0])["added"] == [["events", 0, 0]]
    assert process.heard.of(Readiness)[-1].reason is None
    assert process.heard.of(RoleChanged)[-1] == RoleChanged("owner", 1)
    finish(process, undisturbed)


def test_a_start_after_a_kill_replays_what_was_committed_after_the_snapshot(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    while owner.run.events < 40:
        owner.run._step(None)
        owner.run._commit()
    owner.run._step(None)  # pending, and lost
    owner.die()
    again = Process(owner.member.broker, tmp_path)
    again.run.recover()
    assert again.run.events == 40
    assert again.run.context.last_commit == metadata(owner.member.broker)
    assert again.member.kept_alive == 2  # once after each batch that was replayed
    finish(again, undisturbed)


def test_a_log_that_was_given_to_another_process_for_good_ends_the_run(owner: Process) -> None:
    owner.member.broker.owner = MemoryMember(owner.member.broker)
    owner.member.answers = [Released("partition 0 is another process's now")]
    assert owner.run.consume() == "stopped"


# ---- commits in doubt


@pytest.mark.parametrize("fates", [["made"], ["not made"], ["not made", "not made", "made"]])
def test_a_commit_in_doubt_ends_made_once(
    owner: Process, undisturbed: list[bytes], fates: list[Any]
) -> None:
    before = metadata(owner.member.broker).commit
    owner.member.sent.clear()
    owner.member.fates = list(fates)
    owner.run._step(None)
    owner.run._commit()
    resent = 1 + len([fate for fate in fates if fate == "not made"])
    assert owner.member.sent == [before + 1] * resent
    assert metadata(owner.member.broker).commit == before + 1
    assert owner.run.context.attempt is None
    assert owner.run.context.last_commit == metadata(owner.member.broker)
    assert len(owner.heard.of(CommitDoubted)) == len(fates)
    finish(owner, undisturbed)


@pytest.mark.parametrize("fate", ["made", "not made"])
def test_the_first_commit_of_all_may_be_in_doubt(
    process: Process, undisturbed: list[bytes], fate: Any
) -> None:
    process.member.fates = [fate]
    process.run.recover()
    assert metadata(process.member.broker).commit == 0
    assert len(process.member.broker.journal) == 1
    finish(process, undisturbed)


def test_another_process_may_make_the_first_commit_while_ours_is_in_doubt(
    process: Process, broker: MemoryBroker, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    other = Process(broker, tmp_path)

    def overtaken(transaction: Transaction) -> None:
        process.die()
        other.run.recover()
        other.run.consume(max_events=20)
        other.die()

    process.member.fates = [overtaken]
    process.run.recover()
    assert process.run.events == 20
    finish(process, undisturbed)


@pytest.mark.parametrize("further", [1, 2])
def test_a_log_that_went_on_without_us_is_followed(
    owner: Process, tmp_path: Path, undisturbed: list[bytes], further: int
) -> None:
    """Another process took over, made commits, the first of the same number as ours, and died."""
    other = Process(owner.member.broker, tmp_path)

    def overtaken(transaction: Transaction) -> None:
        owner.die()
        other.run.recover()
        for _ in range(further):
            other.run._step(None)
            other.run._commit()
        other.die()

    owner.member.fates = [overtaken]
    owner.run._step(None)
    owner.run._commit()
    assert owner.run.events == 20 + further * BATCH
    assert owner.run.context.last_commit == metadata(owner.member.broker)
    assert owner.run.context.pending.predictions == []
    assert owner.run.snapshots.written() is None  # what was written of a state that never was
    finish(owner, undisturbed)


def test_a_commit_of_the_same_number_and_events_may_be_anothers(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    """Its place in the journal tells it from ours."""
    broker = owner.member.broker

    def overtaken(transaction: Transaction) -> None:
        transaction.metadata(len(broker.journal) + 5)  # where ours was put, and aborted
        broker.take(
            Transaction(
                transaction.number,
                transaction.predictions,
                [],
                transaction.journal,
                transaction.positions,
                lambda place: msgspec.structs.replace(
                    read_commit_metadata(transaction.metadata(99)), journal=place
                ).text(),
            )
        )
        transaction.metadata(len(broker.journal) + 5)

    owner.member.fates = [overtaken]
    owner.run._step(None)
    made = len(owner.heard.of(CommitMade))
    owner.run._commit()
    assert len(owner.heard.of(CommitMade)) == made
    assert owner.run.events == 30
    finish(owner, undisturbed)


def test_what_is_pending_is_dropped_when_the_log_is_lost_with_a_commit_in_doubt(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    other = Process(owner.member.broker, tmp_path)

    def overtaken(transaction: Transaction) -> None:
        owner.die()
        other.run.recover()

    def goes_on() -> None:
        other.run._step(None)
        other.run._commit()

    owner.member.fates = [overtaken]
    owner.member.answers = [Joining(), goes_on, goes_on, other.die]  # type: ignore[list-item]
    owner.run._step(None)
    owner.run._commit()
    assert [event.role for event in owner.heard.of(RoleChanged)][-2:] == ["standby", "owner"]
    assert owner.run.events == 40
    finish(owner, undisturbed)


def test_a_commit_in_doubt_may_turn_out_made_after_the_log_was_lost(
    owner: Process, undisturbed: list[bytes]
) -> None:
    owner.member.fates = ["made"]
    owner.member.answers = [Standby(), Standby()]
    owner.run._step(None)
    owner.run._commit()
    assert owner.run.events == 30
    finish(owner, undisturbed)


def test_a_commit_of_who_is_no_longer_the_owner_is_in_doubt(
    owner: Process, undisturbed: list[bytes]
) -> None:
    owner.run._step(None)
    owner.member.broker.owner = MemoryMember(owner.member.broker)
    owner.member.answers = [Standby(), owner.die]  # type: ignore[list-item]
    owner.run._commit()
    finish(owner, undisturbed)


# ---- partitions


def second(broker: MemoryBroker) -> Partition:
    broker.add(some_events(100, 15), ("events", 1))
    return "events", 1


def test_a_partition_that_is_added_is_read_from_its_beginning(owner: Process) -> None:
    new = second(owner.member.broker)
    assert owner.run.consume() == "finished"
    broker = owner.member.broker
    assert broker.positions == {("events", 0): EVENTS, new: 15}
    assert len(broker.predictions) == EVENTS + 15
    added = [json.loads(entry).get("added") for entry in broker.journal]
    assert added.count([["events", 1, 0]]) == 1


@pytest.mark.parametrize("fate", ["made", "not made"])
def test_a_partition_may_be_added_while_a_commit_is_in_doubt(owner: Process, fate: Any) -> None:
    """The attempt does not name it; the commit after it does."""
    broker = owner.member.broker
    owner.run._step(None)
    owner.member.fates = [fate]
    new = second(broker)
    owner.run._commit()
    assert new not in broker.positions
    assert owner.run.context.pending.added == [("events", 1, 0)]
    assert owner.run.consume() == "finished"
    assert len(broker.predictions) == EVENTS + 15


@pytest.mark.parametrize("fate", ["made", "not made"])
def test_the_commit_that_adds_a_partition_may_be_in_doubt(owner: Process, fate: Any) -> None:
    broker = owner.member.broker
    second(broker)
    owner.member.fates = [fate]
    assert owner.run.consume() == "finished"
    assert len(broker.predictions) == EVENTS + 15
    added = [json.loads(entry).get("added") for entry in broker.journal]
    assert added.count([["events", 1, 0]]) == 1


def test_partitions_that_are_assigned_again_unchanged_leave_memory_as_it_is(
    owner: Process, undisturbed: list[bytes]
) -> None:
    owner.run._step(None)
    state, pending = owner.run.state, owner.run.context.pending
    owner.run.recover()
    assert owner.run.state is state
    assert owner.run.context.pending is pending
    assert len(pending.predictions) == BATCH
    finish(owner, undisturbed)


def test_offsets_that_were_deleted_are_an_error(owner: Process) -> None:
    owner.member.broker.metadata = None
    with pytest.raises(RecoveryError, match="offsets were deleted"):
        owner.run.recover()


def test_a_partition_without_its_offset_was_recreated(owner: Process) -> None:
    owner.member.broker.positions = {}
    with pytest.raises(RecoveryError, match="recreated"):
        owner.run.recover()


def test_snapshots_without_a_commit_are_an_error(owner: Process, tmp_path: Path) -> None:
    fresh = MemoryBroker()
    fresh.add(some_events(0, 5))
    with pytest.raises(RecoveryError, match="knows no commit"):
        Process(fresh, tmp_path).run.recover()


# ---- replaying


def grown(owner: Process, events: int = 40) -> None:
    """Commit more, and let no snapshot name it."""
    while owner.run.events < events:
        owner.run._step(None)
        owner.run._commit()
    owner.die()


def test_recovery_starts_again_when_the_log_goes_away(
    owner: Process, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    grown(owner)
    again = Process(owner.member.broker, tmp_path)
    again.member.unavailable = 3
    again.run.recover()
    assert again.member.asked == 4
    assert again.run.events == 40
    finish(again, undisturbed)


def test_recovery_does_not_start_again_for_ever(owner: Process, tmp_path: Path) -> None:
    grown(owner)
    again = Process(owner.member.broker, tmp_path)
    again.member.unavailable = 1_000
    with pytest.raises(LogUnavailable):
        again.run.recover()
    assert again.member.asked == 10


# ---- following


def follow(owner: Process, standby: Process, steps: list[Callable[[], None]]) -> None:
    """Let the standby recover while the owner does these steps."""
    standby.member.answers = list(steps)  # type: ignore[arg-type]
    standby.run.recover()


def advance(process: Process) -> Callable[[], None]:
    def step() -> None:
        process.run._step(None)
        process.run._commit()

    return step


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
    assert owner.run.snapshots.written() is not None
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


# ---- stopping, in every phase


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
