"""Who may use a run folder: one process, or those of one group; and one pipeline for ever."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from streamforest.errors import ConfigError, StreamForestError
from streamforest.object_files import ObjectFolder
from streamforest.private_files import FILE_MODE, create, make_folder, read_json, replace, update
from streamforest.text import shown

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)

_MAX_IDENTITY = 1 << 16  # bytes


class RunLock:
    """A run folder, held by one process at a time, or `shared` by those of one group."""

    def __init__(self, folder: Path, shared: bool = False, mode: int = FILE_MODE) -> None:
        make_folder(folder, mode)
        self._file = update(folder / "lock", mode)
        if sys.platform != "win32":
            try:
                kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
                fcntl.flock(self._file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise StreamForestError(
                    f"{folder}: another run is under way in this folder; wait for it, "
                    "or give this one its own with --set run.folder=…"
                ) from None

    def is_alone(self) -> bool:
        """Whether no other process shares the folder now."""
        if sys.platform == "win32":
            return False
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True

    def release(self) -> None:
        """Let others in."""
        self._file.close()


def claim(
    folder: Path,
    identity: Mapping[str, str],
    mode: int = FILE_MODE,
    unused: Callable[[], bool] = lambda: False,
) -> None:
    """Let a folder belong to one pipeline for ever; ConfigError if it belongs to another.

    Processes of one group share it. Two pipelines would delete each other's snapshots. A folder in which
    nothing was read yet is `unused`, and may become another's.
    """
    path, ours = folder / "pipeline.json", json.dumps(dict(identity)).encode()
    try:
        with create(path, mode) as file:
            file.write(ours)
        return
    except FileExistsError:
        pass
    try:
        owner = read_json(path)
    except (FileNotFoundError, ValueError) as error:
        # another process of the group has just made it, or was killed doing so
        log.warning("%s cannot be read and is written again: %s", path, error)
        owner = None
    if not isinstance(owner, dict) or (owner != dict(identity) and unused()):
        replace(path, ours, mode)
    elif owner != dict(identity):
        raise _of_another(str(folder), owner, identity, "run.folder")


def claim_objects(folder: ObjectFolder, identity: Mapping[str, str]) -> None:
    """The same for a prefix in object storage, which is never unused again."""
    name, ours = "pipeline.json", json.dumps(dict(identity)).encode()
    if folder.create(name, ours):
        return
    try:
        owner = json.loads(folder.read(name, _MAX_IDENTITY))
    except ValueError:
        owner = None
    if not isinstance(owner, dict):
        raise ConfigError(f"{folder}/{name}: not written by a pipeline; choose another prefix")
    if owner != dict(identity):
        raise _of_another(str(folder), owner, identity, "run.snapshots")


def _of_another(
    folder: str, owner: Mapping[str, object], identity: Mapping[str, str], key: str
) -> ConfigError:
    differs = ", ".join(f"{k} {shown(v)}" for k, v in owner.items() if identity.get(k) != v)
    return ConfigError(
        f"{folder}: belongs to another pipeline ({differs}); give this one a {key} of its own"
    )
