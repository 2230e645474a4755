"""What the page's history keeps over a restart, and the file of JSON that holds it.

The file may be lost, and whatever stands there instead is refused with a warning: it costs a picture, nothing
else.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import msgspec

from streamforest.observe.page.points import MAX_POINTS, Amount, Count, Steps, Whole
from streamforest.observe.page.recent_classes import RecentClasses
from streamforest.private_files import make_folder, reading, replace

log = logging.getLogger(__name__)

FILE = "page-history.json"
MAX_LETTERS = 20
MAX_REASONS = 40
_VERSION = 1
_MAX_FILE = 8 << 20  # bytes of the file that are read

Text = Annotated[str, msgspec.Meta(max_length=4_000)]


class Letter(msgspec.Struct, forbid_unknown_fields=True):
    """A dead letter: what was wrong and where it stands, never the event itself."""

    at: Amount
    reason: Text
    message: Text
    place: Text


class Kept(msgspec.Struct, forbid_unknown_fields=True):
    """What outlives a restart."""

    version: int = _VERSION
    saved_at: Amount = 0.0
    minutes: Steps = msgspec.field(default_factory=lambda: Steps(2.0))
    hours: Steps = msgspec.field(default_factory=lambda: Steps(72.0))
    whole: Whole = msgspec.field(default_factory=Whole)
    classes: RecentClasses = msgspec.field(default_factory=RecentClasses)
    letters: list[Letter] = []
    reasons: dict[Text, Count] = {}
    labelled_at: Amount = 0.0
    """When a labelled event was last learned."""
    commits: Count = 0
    commits_in_doubt: Count = 0
    snapshots: Count = 0
    snapshot_failures: Count = 0
    snapshot_at: Amount = 0.0
    snapshot_bytes: Count = 0
    rebalances: Count = 0

    def is_sound(self) -> bool:
        """Whether a run can have left this: lists are bounded and points go up."""
        series = (self.minutes.points, self.hours.points, self.whole.points)
        return (
            self.version == _VERSION
            and len(self.letters) <= MAX_LETTERS
            and len(self.reasons) <= MAX_REASONS
            and self.minutes.step > 0
            and self.hours.step > 0
            and all(len(points) <= MAX_POINTS for points in series)
            and self.classes.is_sound()
        )


# made here, once: msgspec crashes where two threads are the first to decode a type
_decode = msgspec.json.Decoder(Kept).decode


def read(path: Path) -> Kept | None:
    """What a run has kept; None if there is none, or none that can be read."""
    try:
        with reading(path) as file:
            data = file.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise ValueError(f"it has over {_MAX_FILE:,} bytes")
        kept = _decode(data)
        if not kept.is_sound():
            raise ValueError("it is none that a run has written")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        log.warning("%s: the page starts without a history (%s)", path, error)
        return None
    return kept


def write(path: Path, kept: Kept, mode: int) -> bool:
    """Replace the file; False, with a warning, where that cannot be done."""
    try:
        make_folder(path.parent, mode)
        replace(path, msgspec.json.encode(kept), mode)
    except (OSError, ValueError, OverflowError, TypeError) as error:
        log.warning("%s: the page's history is not kept (%s)", path, error)
        return False
    return True
