"""Acting for a pipeline that does not run: its group joined as the only member."""

from __future__ import annotations

from collections.abc import Callable

from kafka.errors import InconsistentGroupProtocolError

from streamforest.errors import StreamForestError
from streamforest.io.kafka.membership import TopicHold
from streamforest.io.kafka.retry import Patience


class OnlyMember(TopicHold):
    """All partitions, or an error: nobody else may be at work."""

    def settle(self, patience: Patience, meanwhile: Callable[[], None]) -> None:
        """Until the partitions are ours; a group whose members share them out otherwise is at work."""
        try:
            super().settle(patience, meanwhile)
        except InconsistentGroupProtocolError as error:
            raise running() from error


def running() -> StreamForestError:
    """What is said to somebody who should have stopped the pipeline first."""
    return StreamForestError("the pipeline is running: stop it first, all its processes")
