"""An owner that has read everything: its last snapshot is named by a commit, and is not written again."""

from __future__ import annotations

from pathlib import Path

from support.memory_log import MemoryBroker
from support.owner_process import EVENTS, Process, metadata

from streamforest.observe.telemetry import SnapshotStarted

LAST = f"s-{EVENTS:012d}"
IDLE = 20


def test_a_snapshot_after_the_last_commit_is_named_while_no_records_come(
    broker: MemoryBroker, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    process = Process(broker, tmp_path, drain=False, snapshot_seconds=0.0)
    process.run.recover()
    named: list[str] = []
    begun: list[int] = []

    def stop() -> bool:
        """After so many iterations without records, each with time for a snapshot."""
        process.run.snapshots.wait()
        if process.run.events == EVENTS:
            named.append(metadata(broker).snapshot)
            begun.append(len(process.heard.of(SnapshotStarted)))
        return len(named) == IDLE

    process.run.consume(stop=stop)
    assert named[-1] == LAST
    assert begun[3:] == [begun[3]] * (IDLE - 3)
    assert broker.predictions == undisturbed
    commits = metadata(broker).commit

    # after a kill nothing is learned again
    process.die()
    again = Process(broker, tmp_path)
    again.run.replay = None  # type: ignore[assignment, method-assign]
    again.run.recover()
    assert again.run.events == EVENTS
    assert metadata(broker).commit == commits
