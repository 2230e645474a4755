"""Commits of which the log did not say whether they were made.

Whatever happens, each event ends with one prediction, the same as in an undisturbed run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.memory_log import MemoryBroker, MemoryMember
from support.owner_process import (
    BATCH,
    Process,
    finish,
    metadata,
)

from streamforest.io.log import (
    Joining,
    Standby,
    Transaction,
)
from streamforest.observe.telemetry import (
    CommitDoubted,
    CommitMade,
    RoleChanged,
)
from streamforest.runtime.checkpoint.journal import read_commit_metadata


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
    assert owner.run.snapshots.written is None  # what was written of a state that never was
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
