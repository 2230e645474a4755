"""What a log does while its broker is away: wait a little longer each time, and say why."""

from __future__ import annotations

import logging
import time

from kafka.errors import (
    AuthorizationError,
    CorruptRecordError,
    KafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
)

from streamforest.errors import BrokerError
from streamforest.io.kafka.auth.diagnosis import diagnose
from streamforest.io.kafka.clients import admin, asking
from streamforest.io.kafka.permissions import explain
from streamforest.io.kafka.settings import KafkaSettings
from streamforest.io.kafka.topics import absent
from streamforest.io.log import CommitInDoubt

log = logging.getLogger(__name__)

_ASK_AFTER = 5  # failures in a row between two looks at why the broker cannot be reached
_GONE_AT = 2  # failed commits in a row after which we look whether a topic is gone
_DAMAGED_AFTER = 5  # times that one batch came damaged; the way here may damage one, not all
_BACK_OFF = (0.1, 0.2, 0.5, 1.0, 2.0)


class RetryPolicy:
    """Counts failures in a row, and waits a little longer after each."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.failures = 0
        self.failing: str | None = None
        """What went wrong last, if nothing has gone right since."""
        self.uncommitted: str | None = None
        """Why the last commit failed, if none has succeeded since."""
        self._failed_at = 0.0
        self._explained = ""
        """What was logged about the broker since something last succeeded."""
        self._doubts = 0
        self._metadata: str | None = None
        self._damaged: tuple[str, int] = "", 0
        """The batch that could not be read last, and how often."""

    def recovered(self) -> None:
        """Something succeeded: forget the failures."""
        self.failures, self.failing, self._explained = 0, None, ""

    def heard(self, silent: float) -> None:
        """The broker last answered so many seconds ago: all is well if that was after a failure."""
        if silent < time.monotonic() - self._failed_at:
            self.recovered()

    def committed(self) -> None:
        """A commit was made, or there is none to make."""
        self._doubts, self.uncommitted = 0, None

    def found(self, metadata: str | None) -> None:
        """The last commit's metadata: if it has changed since the last time, commits are being made."""
        if metadata != self._metadata:
            self._metadata = metadata
            self.committed()

    def doubted(self, doubt: CommitInDoubt) -> None:
        """A commit failed, and will be sent again: the first time at once, then after a pause.

        It may be one that can never succeed: BrokerError names a topic that is gone.
        """
        self.uncommitted = f"commit: {doubt}"
        self._doubts += 1
        if self._doubts % _ASK_AFTER == _GONE_AT:
            self._name_gone()
        if self._doubts > 1:
            time.sleep(_BACK_OFF[min(self._doubts, len(_BACK_OFF) - 1)])

    def _name_gone(self) -> None:
        """BrokerError with the topics for our own messages that the broker does not have."""
        topics = self.settings.topics
        try:
            with asking(self.settings.connection) as client:
                gone = absent(client, [topics.predictions, topics.dead_letters, topics.journal])
        except BrokerError as error:
            log.warning("%s", error)  # it is away: that may pass
            return
        if gone:
            raise BrokerError(
                f"the broker at {self.settings.servers} has no topic {', '.join(map(repr, gone))} any "
                "more: create it again and restart; if it was the journal, the start says how to go on"
            )

    def back_off(self, what: str, error: KafkaError) -> None:
        """Sleep a little longer after each failure in a row; give up on what waiting cannot fix."""
        if isinstance(error, UnknownTopicOrPartitionError):
            raise BrokerError(f"{what}: a topic is missing: {error}") from error
        if isinstance(error, AuthorizationError):
            raise not_allowed(self.settings, error) from error
        if isinstance(error, CorruptRecordError | UnsupportedCodecError):
            self._note_damage(error)
        self._tell_trouble()
        self.failing = f"{what}: {type(error).__name__}: {error}"
        self._failed_at = time.monotonic()
        pause = _BACK_OFF[min(self.failures, len(_BACK_OFF) - 1)]
        self.failures += 1
        log.log(
            logging.WARNING
            if self.failures == 1
            else logging.DEBUG,  # once, until something succeeds
            "%s failed (%s: %s); again in %.1f s",
            what,
            type(error).__name__,
            error,
            pause,
        )
        time.sleep(pause)

    def _note_damage(self, error: KafkaError) -> None:
        """BrokerError once the same batch has come damaged again and again."""
        text, times = self._damaged
        self._damaged = str(error), times + 1 if text == str(error) else 1
        if self._damaged[1] >= _DAMAGED_AFTER:
            raise BrokerError(
                f"a batch cannot be read, {_DAMAGED_AFTER} times in a row: {error}. Put the broker's "
                "copy right, or delete the records up to and with it (kafka-delete-records) and start "
                "again: the pipeline then says how to go on without them"
            ) from error

    def _tell_trouble(self) -> None:
        """Now and then, say why the broker cannot be reached: a password may have been changed."""
        if self.failures % _ASK_AFTER == _ASK_AFTER - 1:
            trouble = diagnose(self.settings.connection)
            if trouble is not None and trouble.text != self._explained:
                self._explained = trouble.text
                log.warning("%s", trouble.text)


def not_allowed(settings: KafkaSettings, error: AuthorizationError) -> BrokerError:
    """A permission that was taken away while the pipeline runs, by name."""
    client = admin(settings.connection)
    try:
        return explain(client, settings.connection, settings.needs, error)
    finally:
        client.close()
