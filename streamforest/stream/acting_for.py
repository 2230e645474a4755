"""Acting for a pipeline that does not run: its group joined as the only member, its journal read whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafka.errors import InconsistentGroupProtocolError

from streamforest.errors import StreamForestError
from streamforest.stream.kafka_hold import TopicHold
from streamforest.stream.kafka_patience import Patience
from streamforest.stream.kafka_reader import JournalTail


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


class WholeJournal(JournalTail):
    """All that stands in a journal, little by little."""

    def records(self, idle: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
        """From the first to where it ends now; `idle` is called after each look."""
        end = self.end()
        while self._consumer.position(self._tp) < end:
            yield from self.poll(500)
            idle()
