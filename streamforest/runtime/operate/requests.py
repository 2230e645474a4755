"""Operator requests to a running pipeline: left in its folder, carried out at the next commit.

An announced class is checked and recorded in the journal at that commit, and takes effect after it: recovery,
standby and replay announce the class at the same event.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from streamforest.errors import StreamForestError
from streamforest.private_files import FILE_MODE, read_json, replace

log = logging.getLogger(__name__)

Label = str | int | float | bool
Announcement = tuple[Label, list[Label]]
"""The class, and its support classes."""

_MAX_BYTES = 64 << 10


class OperatorRequests:
    """The file `requests.json` in a run folder; without a folder there are no requests."""

    def __init__(self, folder: Path | None = None, mode: int = FILE_MODE) -> None:
        self._path = None if folder is None else folder / "requests.json"
        self._mode = mode
        self.announcements = AnnouncementRequests(folder, mode)

    def promotion(self) -> str | None:
        """The name of the model that an operator asks to publish; None if there is no such request.

        A request is written to its place by a rename. One that cannot be read is therefore not half
        written but wrong: it is logged and deleted.
        """
        if self._path is None or not os.path.lexists(self._path):
            return None
        try:
            request = read_json(self._path, _MAX_BYTES)
            if not isinstance(request, dict) or not isinstance(request.get("promote"), str):
                raise ValueError('expected {"promote": "NAME"}')
        except FileNotFoundError:
            return None  # withdrawn in the meantime
        except (OSError, ValueError) as error:
            log.error("%s: invalid operator request, deleted: %s", self._path, error)
            self._delete()
            return None
        return str(request["promote"])

    def promotion_among(self, models: Container[str]) -> str:
        """The model that an operator wants to publish from the next event on; empty if there is none."""
        wanted = self.promotion()
        if wanted is not None and wanted not in models:
            log.error("%r cannot be promoted: there is no such model", wanted)
            self.acknowledge(wanted)
            return ""
        return wanted or ""

    def request_promotion(self, name: str) -> None:
        """Ask for a model to be promoted."""
        assert self._path is not None
        replace(self._path, json.dumps({"promote": name}).encode(), self._mode)

    def acknowledge(self, name: str) -> None:
        """Remove the request for this model, which is carried out and committed. A newer request for
        another model stays.
        """
        if self._path is not None and self.promotion() == name:
            self._delete()

    def _delete(self) -> None:
        assert self._path is not None
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.error("%s cannot be deleted: %s", self._path, error)

    @property
    def waiting(self) -> bool:
        """Whether there is a request that is not yet acknowledged."""
        return self._path is not None and os.path.lexists(self._path)


class AnnouncementRequests:
    """The file `announcement.json` in a run folder; without a folder there are no requests."""

    def __init__(self, folder: Path | None = None, mode: int = FILE_MODE) -> None:
        self._path = None if folder is None else folder / "announcement.json"
        self._mode = mode

    def request(self, label: Label, support: list[Label]) -> None:
        """Ask for a class to be announced."""
        self._write({"announce": label, "support": support})

    def waiting(self) -> Announcement | None:
        """The announcement that an operator asks for; None if there is none, or it was refused.

        A request that cannot be read is not half written but wrong: it is logged and deleted.
        """
        found = self._read()
        if found is None or "refused" in found:
            return None
        label, support = found.get("announce"), found.get("support")
        if (
            not _is_label(label)
            or not isinstance(support, list)
            or not all(map(_is_label, support))
        ):
            log.error("%s: invalid operator request, deleted", self._path)
            self.acknowledge()
            return None
        return label, support  # type: ignore[return-value]

    def refusal(self) -> str | None:
        """Why the request was refused; None if it was not."""
        found = self._read()
        return None if found is None or "refused" not in found else str(found["refused"])

    def accepted(self, models: Mapping[str, Any]) -> list[Announcement]:
        """The announcement that waits, if every few-shot forest of the pipeline can take it.

        One that cannot be taken is refused, with the reason for the operator who asks.
        """
        wanted = self.waiting()
        if wanted is None:
            return []
        forests = _taking(models)
        try:
            if not forests:
                raise StreamForestError(
                    "no model of this pipeline uses support classes; set model.kind = 'few'"
                )
            for forest in forests:
                forest.check_announcement(*wanted)
        except StreamForestError as error:
            log.error("announcement refused: %s", error)
            self._write({"refused": str(error)})
            return []
        return [wanted]

    def acknowledge(self) -> None:
        """Remove the request: it is carried out, or an operator knows that it is refused."""
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                log.error("%s cannot be deleted: %s", self._path, error)

    def _read(self) -> dict[str, Any] | None:
        if self._path is None or not os.path.lexists(self._path):
            return None
        try:
            found = read_json(self._path, _MAX_BYTES)
        except FileNotFoundError:
            return None  # carried out in the meantime
        except (OSError, ValueError) as error:
            log.error("%s: invalid operator request, deleted: %s", self._path, error)
            self.acknowledge()
            return None
        return found if isinstance(found, dict) else {}

    def _write(self, content: dict[str, Any]) -> None:
        assert self._path is not None
        replace(self._path, json.dumps(content).encode(), self._mode)


def announce(models: Mapping[str, Any], announced: list[Announcement]) -> None:
    """Announce classes to every model that can take it, after the commit that says so."""
    for label, support in announced:
        for forest in _taking(models):
            forest.announce(label, support)


def _taking(models: Mapping[str, Any]) -> list[Any]:
    """The few-shot forests among the models."""
    return [model.forest for model in models.values() if hasattr(model.forest, "announce")]


def _is_label(value: Any) -> bool:
    return isinstance(value, (str, int, float))
