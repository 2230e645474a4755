"""Every error that a user of the package can cause, under one root.

Input errors are also `ValueError`s, so that code which catches those keeps working. A message names
the field, the value and the remedy.
"""

from __future__ import annotations


class StreamForestError(Exception):
    """Root of all errors raised on purpose by this package."""


class InputError(StreamForestError, ValueError):
    """An invalid event, label or argument. Nothing was learned from it."""


class ParameterError(InputError):
    """A constructor argument outside its range."""


class FeatureError(InputError):
    """A feature whose value or name cannot be used."""


class LabelError(InputError):
    """A label that cannot name a class."""


class TaxonomyError(LabelError):
    """A class that comes with another category than the one it belongs to."""


class CapacityError(InputError):
    """A limit (`max_classes`, `max_features`, …) would be exceeded."""


class SnapshotError(StreamForestError, ValueError):
    """A snapshot that cannot be written, read or trusted."""


class StorageError(StreamForestError):
    """Object storage that does not answer, or refuses to: what it holds is unknown. Try again later."""


class ConfigError(StreamForestError, ValueError):
    """A pipeline file, option or environment variable that cannot be used."""


class ChangedError(StreamForestError, ValueError):
    """A pipeline file that differs from the one its run began with; the message says what to do."""


class DatasetError(StreamForestError, ValueError):
    """A recorded set that is missing or not in the expected format."""


class DependencyError(StreamForestError, ImportError):
    """An installed package of a release that this one does not work with."""


class ExecutorError(StreamForestError):
    """Actors that do not start, end again and again, or differ from the process that uses them."""


class SequenceError(ExecutorError):
    """A call to an actor that would be repeated, or would leave one out."""


class BrokerError(StreamForestError):
    """A broker that cannot be started, reached or trusted."""


class BrokerUnavailable(BrokerError):
    """A broker that does not answer now; waiting may help."""


class EventError(InputError):
    """A message that is not a valid event. `reason` is a short word for counters and headers."""

    reason = "undecodable"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class RecoveryError(StreamForestError):
    """A run that cannot be resumed from what is left of it; the message says what to do."""


class RecordsGoneError(RecoveryError):
    """The log no longer has records that a run needs: events that were learned, or its journal. A snapshot
    can be adopted without them.
    """


class UnreadGoneError(RecordsGoneError):
    """The log no longer has events that were not read yet. All that was read is learned and committed."""


class VersionChangeError(RecoveryError):
    """Events in the journal were learned by a rule that this version no longer has; see
    `--accept-version-change`.
    """


class StreamForestWarning(UserWarning):
    """Root of the package's warnings."""


class ConsistencyWarning(StreamForestWarning):
    """Parameters for which the forest's theorem of consistency does not hold."""
