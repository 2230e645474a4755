"""By which rule events were learned: a journal is replayed under the same one, or the state is another.

Each forest has a learning revision, which whoever changes what it learns raises. Each journal record says
under which its events were learned, and the records decide: what follows a snapshot of revision 1 may have
been learned by revision 2, after a clean stop and a new version, and is learned again by revision 2 exactly.
After a clean stop there is nothing to learn again, and nothing is asked.

The same bits are promised for one architecture and one set of package versions, too. Those stand in the
sidecar of a snapshot, which may be lost, and few of their changes touch the bits: other ones are told, not
refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from streamforest.errors import VersionChangeError
from streamforest.forests.persistence.snapshot import provenance
from streamforest.runtime.checkpoint.journal import Entry, revisions_of
from streamforest.runtime.processing.adapters import Model

log = logging.getLogger(__name__)

_PACKAGES = ("streamforest", "numpy", "numba", "llvmlite", "river")  # those that compute


def check_revisions(entry: Entry, models: Mapping[str, Model], accept: bool) -> None:
    """VersionChangeError if a record's events were learned under another revision than today's, unless
    that is accepted.
    """
    if entry.events <= entry.first or accept:
        return
    now = revisions_of(models)
    changed = [
        f"{name} ({type(model.forest).__name__}) by revision {entry.revisions.get(name, 1)}, "
        f"now by {now.get(name, 1)}"
        for name, model in models.items()
        if entry.revisions.get(name, 1) != now.get(name, 1)
    ]
    if changed:
        raise VersionChangeError(
            f"commit {entry.commit}: its events {entry.first} to {entry.events - 1} were learned by "
            f"another rule: {'; '.join(changed)}. Learned again they would give another model than the "
            "one that made the predictions. Start the version of streamforest that learned them, stop "
            "it cleanly, then start this one; or learn them by the new rule with "
            "--accept-version-change"
        )


def note_revisions(models: Mapping[str, Model], events: int) -> None:
    """Say once, at a start with nothing to replay, that another rule counts from here on."""
    for name, model in models.items():
        forest = model.forest
        if forest._saved_by not in (None, forest.learning_revision):
            log.info(
                "%s was learned by revision %d of its rule up to event %d; from here on it is %d",
                name,
                forest._saved_by,
                events,
                forest.learning_revision,
            )


def warn_of_versions(name: str, sidecar: Mapping[str, Any]) -> None:
    """Warn before events after a snapshot are learned again on another machine or with other packages."""
    now = provenance()
    before = sidecar.get("versions")
    if not isinstance(before, dict):
        return  # lost, or never there
    pairs = [("machine", sidecar.get("machine"), now["machine"])]
    pairs += [(package, before.get(package), now["versions"][package]) for package in _PACKAGES]
    changed = [f"{what} {was!s:.40} → {is_}" for what, was, is_ in pairs if was not in (None, is_)]
    if changed:
        log.warning(
            "events after %s are learned again with other versions than it was written with (%s): the "
            "same bits are promised for one set of versions only",
            name,
            ", ".join(changed),
        )
