"""Joining the group, and the first commit.

Whatever happens, each event ends with one prediction, the same as in an undisturbed run.
"""

from __future__ import annotations

import json
from pathlib import Path

from support.memory_log import MemoryMember
from support.owner_process import (
    Process,
    finish,
    metadata,
)

from streamforest.io.log import (
    Joining,
    Released,
)
from streamforest.observe.telemetry import (
    Readiness,
    RoleChanged,
)


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
