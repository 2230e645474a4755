"""What an operator wants of a pipeline that runs: left in its folder, fulfilled at the next commit."""

from __future__ import annotations

import json
import os
from pathlib import Path


class Wishes:
    """The file `wishes.json` in a run folder; without a folder there are none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = None if folder is None else folder / "wishes.json"

    def promoted(self) -> str | None:
        """The model that is to publish, if somebody wants that."""
        if self._path is None or not self._path.exists():
            return None
        try:
            return str(json.loads(self._path.read_text(encoding="utf-8"))["promote"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def promote(self, name: str) -> None:
        """Leave the wish that a model be promoted."""
        assert self._path is not None
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps({"promote": name}), encoding="utf-8")
        os.replace(part, self._path)

    def fulfilled(self, name: str) -> None:
        """The wish for this model was done, and is committed; one that came meanwhile stays."""
        if self._path is not None and self.promoted() == name:
            self._path.unlink(missing_ok=True)

    @property
    def waiting(self) -> bool:
        """Whether there is one that was not yet fulfilled."""
        return self._path is not None and self._path.exists()
