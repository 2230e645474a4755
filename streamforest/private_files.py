"""Files of a run: private to their owner, and never written through a symbolic link.

Predictions and snapshots contain data of the events, so files are created with mode 0600 and folders with
0700, unless the caller gives another mode. Whoever may write to the folder could plant a link under a name
that is about to be written. So new files are created exclusively, existing ones are opened without following
a link, and a rename replaces a link, not its target. The run folder itself may be reached by a link.

Reading is bounded and trusts nothing: the folder may contain anything.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import socket
import stat
import sys
from pathlib import Path
from typing import Any, BinaryIO

if sys.platform != "win32":
    import fcntl

FILE_MODE = 0o600
"""Read and written by their owner alone."""

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for its other end
_MAX_BYTES = 1 << 20  # of a small file
_LINK = "a link, which a run does not write through: put the file itself there, or link the whole folder"


def folder_mode(mode: int) -> int:
    """The mode of a folder whose files have `mode`: whoever may read them may list and enter it.

    >>> [oct(folder_mode(mode)) for mode in (0o600, 0o640, 0o664)]
    ['0o700', '0o750', '0o775']
    """
    return mode | (mode & 0o444) >> 2


def make_folder(path: Path, mode: int = FILE_MODE) -> None:
    """Create a folder for files of `mode`; one that exists stays as it is."""
    try:
        path.mkdir(folder_mode(mode), parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    with contextlib.suppress(OSError):  # a file system without modes
        path.chmod(folder_mode(mode))


def create(path: Path, mode: int | None = FILE_MODE) -> BinaryIO:
    """Create a file to write to; FileExistsError if anything has that name, a link included.

    With `mode` None the process's umask decides.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
    handle = os.open(path, flags, 0o666 if mode is None else mode)
    _set_mode(handle, mode)
    return os.fdopen(handle, "wb")


def recreate(path: Path, mode: int | None = FILE_MODE) -> BinaryIO:
    """The same, but first remove whatever has that name; of a link, the link and not its target."""
    try:
        return create(path, mode)
    except FileExistsError:
        path.unlink()
        return create(path, mode)


def update(path: Path, mode: int = FILE_MODE) -> BinaryIO:
    """Open a file to read and write, created if missing; OSError if it is a link or not a regular file."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, mode)
        _set_mode(handle, mode)
    except FileExistsError:
        handle = _opened(path, os.O_RDWR | _FLAGS)
    return os.fdopen(handle, "r+b")


def replace(path: Path, data: bytes, mode: int | None = FILE_MODE) -> None:
    """Write a small file atomically, in place of whatever has its name, a link included."""
    part = part_of(path)
    try:
        with create(part, mode) as file:
            try_lock(file)
            file.write(data)
            file.flush()
            os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def part_of(path: Path) -> Path:
    """A unique name for a file that will be renamed to `path`; it contains the host that writes it."""
    return path.with_name(f"{path.name}.{host()}_{secrets.token_hex(8)}.part")


def reading(path: Path) -> BinaryIO:
    """Open a file to read; OSError, without waiting, if it is a pipe, a device or a folder."""
    return os.fdopen(_opened(path, os.O_RDONLY), "rb")


def read_json(path: Path, limit: int = _MAX_BYTES) -> Any:
    """The content of a JSON file.

    OSError if it cannot be read; ValueError if it is not JSON, nested too deep or over `limit` bytes.
    """
    with reading(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it has over {limit:,} bytes")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _opened(path: Path, flags: int) -> int:
    """The handle of a regular file; OSError if it is a pipe, a device or a folder."""
    try:
        handle = os.open(path, flags | _NO_WAIT | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(errno.ELOOP, _LINK, str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return handle


def _set_mode(handle: int, mode: int | None) -> None:
    """Set the mode, also where the umask has removed bits of it."""
    if mode is None or sys.platform == "win32":
        return
    if stat.S_IMODE(os.fstat(handle).st_mode) != mode:
        with contextlib.suppress(OSError):  # a file system without modes
            os.fchmod(handle, mode)


def try_lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed; False if another process holds the lock, or locks do not exist."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def host() -> str:
    """The name of this host, in characters that a file name may have."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())
