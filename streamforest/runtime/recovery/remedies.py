"""What an operator types to make a pipeline go on that cannot resume by itself.

Records can be gone from the log: events by retention, compaction or deletion, before they were read or
after; records of the journal, if its topic was cut or recreated. The models are not gone: a snapshot of them
is in the folder. So the error names the newest snapshot that belongs to the last commit or to an earlier one,
in the very command that adopts it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from streamforest.errors import RecoveryError, StorageError, StreamForestError
from streamforest.io.log import Partition
from streamforest.runtime.checkpoint.journal import CommitMetadata
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.checkpoint.store import SnapshotFolder

BEGINNING = "s-000000000000"
"""The name of the snapshot of a pipeline that has read nothing."""


class Remedies:
    """The commands for one run."""

    def __init__(
        self,
        snapshots: SnapshotFolder,
        restored: Callable[[str, str], RunState],
        arguments: Sequence[str] = ("PIPELINE",),
    ) -> None:
        """`restored` loads a snapshot by its name and hash; `arguments` are those with which every command
        names the pipeline: its file, and the settings that were given with it.
        """
        self._snapshots = snapshots
        self._restored = restored
        self._arguments = tuple(arguments)

    def command(self, name: str, origin: str) -> str:
        """The command that adopts a snapshot."""
        path, *settings = self._arguments or ("PIPELINE",)
        words = ["streamforest", "snapshots", "adopt", path, name, "--from", origin, *settings]
        return f"`{shlex.join(words)}`"

    def explained(
        self, error: StreamForestError, last: CommitMetadata, positions: Mapping[Partition, int]
    ) -> RecoveryError:
        """The same error, with the command that goes on after the last commit without what is gone."""
        if not self._arguments:
            return RecoveryError(f"{error}; put back what is missing, or start over with --fresh")
        name = self.newest(last, positions)
        if name is None:
            return RecoveryError(
                f"{error}. No snapshot can be used either: put one back into "
                f"{self._snapshots.path}, or give the pipeline another name to start over"
            )
        lost = last.events - int(name[2:])
        learned = (
            "the model keeps all that it has learned"
            if lost == 0
            else f"of the {lost:,} events after it, those that are left are learned again"
        )
        return RecoveryError(
            f"{error}. To go on with what is still there: {self.command(name, 'earliest')} ({learned}); "
            "--from log-end instead skips what is still unread"
        )

    def refuse_lost_offsets(self, ends: Callable[[], Mapping[Partition, int]]) -> None:
        """RecoveryError for snapshots without a commit: the group's offsets have expired, the topic is
        another one, or the folder is another pipeline's. `ends` tells where the partitions end.
        """
        names = [name for name in self._snapshots.names() if name != BEGINNING]
        if names:
            self._refuse_shorter(names[-1], ends())
            raise RecoveryError(
                f"{self._snapshots.path} holds snapshots up to {names[-1]}, but the broker knows no "
                "commit of this pipeline: its offsets have expired (offsets.retention.minutes), or this "
                f"is another broker. {self.command(names[-1], 'journal')} goes on exactly where it "
                "ended if its journal is still there; on another broker --from earliest instead keeps "
                "the model and reads what is there. To start over, move the folder away"
            )

    def _refuse_shorter(self, name: str, ends: Mapping[Partition, int]) -> None:
        """RecoveryError if a partition ends before the place up to which it was read."""
        try:
            read = self._restored(name, "").positions
        except StreamForestError:
            return
        for partition, offset in sorted(read.items()):
            if ends.get(partition, offset) < offset:
                self.refuse_recreated(partition, offset, name)

    def refuse_recreated(self, partition: Partition, offset: int, name: str) -> NoReturn:
        """RecoveryError for a partition that was read and has no commit any more: it is another one of the
        same name, and its records would be taken for those that were read long ago.
        """
        raise RecoveryError(
            f"{partition[0]}-{partition[1]} was read up to offset {offset}, but the group has no offset "
            "of it any more: the topic was deleted and recreated. To keep the model and read the new "
            f"topic from its beginning: {self.command(name, 'earliest')}; --from log-end instead skips "
            "what it holds now. If only the group's offsets were reset, --from last-commit goes on where "
            "it was"
        )

    def newest(self, last: CommitMetadata, positions: Mapping[Partition, int]) -> str | None:
        """The newest snapshot of the last commit or an earlier one that can be used; None if there is none.

        Not only those that a commit names: on a topic at rest the newest one waits for the next commit. One
        of a commit that was never made has other positions.
        """
        for name in reversed(self._snapshots.names()):
            if int(name[2:]) > last.events:
                continue
            try:
                state = self._restored(name, last.hash if name == last.snapshot else "")
            except StorageError:
                raise  # it may be there
            except StreamForestError:
                continue
            if _belongs(state, last, positions):
                return name
        return None


def _belongs(state: RunState, last: CommitMetadata, positions: Mapping[Partition, int]) -> bool:
    """Whether a state is that of the last commit or of one before."""
    exact = state.events == last.events
    return all(
        at == positions.get(partition, at) if exact else at <= positions.get(partition, at)
        for partition, at in state.positions.items()
    )
