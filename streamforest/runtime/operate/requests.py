"""What an operator wants of a pipeline that runs: left in its folder, fulfilled at the next commit."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from streamforest.private_files import FILE_MODE, read_json, replace

log = logging.getLogger(__name__)

_MOST = 64 << 10  # bytes


class Wishes:
    """The file `wishes.json` in a run folder; without a folder there are none."""

    def __init__(self, folder: Path | None = None, mode: int = FILE_MODE) -> None:
        self._path = None if folder is None else folder / "wishes.json"
        self._mode = mode

    def promoted(self) -> str | None:
        """The model that is to publish, if somebody wants that.

        A wish is renamed into its place, so one that cannot be read never will be: it is told and deleted.
        """
        if self._path is None or not os.path.lexists(self._path):
            return None
        try:
            told = read_json(self._path, _MOST)
            if not isinstance(told, dict) or not isinstance(told.get("promote"), str):
                raise ValueError('expected {"promote": "NAME"}')
        except FileNotFoundError:
            return None  # taken back meanwhile
        except (OSError, ValueError) as error:
            log.error("%s: no wish that can be read, and is deleted: %s", self._path, error)
            self._delete()
            return None
        return str(told["promote"])

    def promote(self, name: str) -> None:
        """Leave the wish that a model be promoted."""
        assert self._path is not None
        replace(self._path, json.dumps({"promote": name}).encode(), self._mode)

    def fulfilled(self, name: str) -> None:
        """The wish for this model was done, and is committed; one that came meanwhile stays."""
        if self._path is not None and self.promoted() == name:
            self._delete()

    def _delete(self) -> None:
        assert self._path is not None
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.error("%s cannot be deleted: %s", self._path, error)

    @property
    def waiting(self) -> bool:
        """Whether there is one that was not yet fulfilled."""
        return self._path is not None and os.path.lexists(self._path)
