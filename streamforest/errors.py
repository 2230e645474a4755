"""Every error a user of the package can cause, under one root.

Input errors are also `ValueError`s, so code that already catches those keeps working. The message
always names the field, the value and the remedy.
"""

from __future__ import annotations


class StreamForestError(Exception):
    """Root of all errors raised on purpose by this package."""


class InputError(StreamForestError, ValueError):
    """An event, a label or an argument that cannot be taken as it is. Nothing was learned from it."""


class ParameterError(InputError):
    """A constructor argument outside its range."""


class FeatureError(InputError):
    """A feature whose value or name cannot be used."""


class LabelError(InputError):
    """A label that cannot name a class."""


class CapacityError(InputError):
    """A stated bound (`max_classes`, `max_features`, …) would be exceeded."""


class SnapshotError(StreamForestError, ValueError):
    """A snapshot that cannot be written, read or trusted."""


class ConfigError(StreamForestError, ValueError):
    """A pipeline file, flag or environment variable that cannot be used."""


class ChangedError(StreamForestError, ValueError):
    """A pipeline file that no longer says what its run began with; the message says what would help."""


class DatasetError(StreamForestError, ValueError):
    """A recorded set that is not there or not in the expected form."""


class DependencyError(StreamForestError, ImportError):
    """An installed package of a release that this one does not work with."""


class BrokerError(StreamForestError):
    """A broker that cannot be started, reached or trusted."""


class EventError(InputError):
    """A message that is no event. `reason` is a short word for counters and headers."""

    reason = "undecodable"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class RecoveryError(StreamForestError):
    """A run that cannot be taken up from what is left of it; the message says what would help."""


class VersionChangeError(RecoveryError):
    """Journalled events that were learned by another rule than this version has; see
    `--accept-version-change`.
    """


class StreamForestWarning(UserWarning):
    """Root of the package's warnings."""


class ConsistencyWarning(StreamForestWarning):
    """Parameters under which the forest's theorem of consistency does not hold."""
