"""Operator requests to a running pipeline: left in its folder, carried out at the next commit."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Container
from pathlib import Path

from streamforest.private_files import FILE_MODE, read_json, replace

log = logging.getLogger(__name__)

_MAX_BYTES = 64 << 10


class OperatorRequests:
    """The file `requests.json` in a run folder; without a folder there are no requests."""

    def __init__(self, folder: Path | None = None, mode: int = FILE_MODE) -> None:
        self._path = None if folder is None else folder / "requests.json"
        self._mode = mode

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
