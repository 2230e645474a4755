"""Partitions that are added, assigned again, recreated or gone.

Whatever happens, each event ends with one prediction, the same as in an undisturbed run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.memory_log import MemoryBroker
from support.owner_process import (
    BATCH,
    EVENTS,
    Process,
    finish,
    some_events,
)

from streamforest.errors import RecoveryError
from streamforest.io.log import (
    Partition,
)


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
    fresh.add(some_events(0, 25))
    with pytest.raises(RecoveryError, match="knows no commit"):
        Process(fresh, tmp_path).run.recover()


def test_a_topic_that_ends_before_what_was_read_was_recreated(
    owner: Process, tmp_path: Path
) -> None:
    fresh = MemoryBroker()
    fresh.add(some_events(0, 5))
    command = r"`streamforest snapshots adopt PIPELINE s-\d+ --from earliest`"
    with pytest.raises(RecoveryError, match=rf"recreated.*{command}"):
        Process(fresh, tmp_path).run.recover()
