"""Files of a run: for their owner alone, and never written through a link.

Predictions and snapshots hold what was in the events, so a file is made with mode 0600 and a folder with
0700 unless another mode is asked for. Whoever may write to the folder could plant a link by a name that is
about to be written: new files are made exclusively, existing ones are opened without following a link, and a
rename replaces a link instead of what it points to. A run folder that is itself reached by a link is fine.

What is read back from such a folder is bounded, and may be anything.
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
_MOST = 1 << 20  # bytes of a small file
_LINK = "a link, and a run writes through none: put the file itself there, or link the whole folder"


def folder_mode(mode: int) -> int:
    """The mode of a folder whose files have `mode`: who may read them may list and enter it.

    >>> [oct(folder_mode(mode)) for mode in (0o600, 0o640, 0o664)]
    ['0o700', '0o750', '0o775']
    """
    return mode | (mode & 0o444) >> 2


def make_folder(path: Path, mode: int = FILE_MODE) -> None:
    """Make a folder for files of `mode`, if it is not there; one that is there stays as it is."""
    try:
        path.mkdir(folder_mode(mode), parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    with contextlib.suppress(OSError):  # a file system without modes
        path.chmod(folder_mode(mode))


def create(path: Path, mode: int | None = FILE_MODE) -> BinaryIO:
    """A new file to write to; FileExistsError if anything has that name, a link included.

    Without a `mode` it gets what the process gives its files (its umask).
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
    handle = os.open(path, flags, 0o666 if mode is None else mode)
    _set_mode(handle, mode)
    return os.fdopen(handle, "wb")


def recreate(path: Path, mode: int | None = FILE_MODE) -> BinaryIO:
    """The same where something of that name may be left over: it goes, a link and not what it points to."""
    try:
        return create(path, mode)
    except FileExistsError:
        path.unlink()
        return create(path, mode)


def update(path: Path, mode: int = FILE_MODE) -> BinaryIO:
    """A file to read and write, made if it is not there; OSError if it is a link, or no file at all."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, mode)
        _set_mode(handle, mode)
    except FileExistsError:
        handle = _opened(path, os.O_RDWR | _FLAGS)
    return os.fdopen(handle, "r+b")


def replace(path: Path, data: bytes, mode: int | None = FILE_MODE) -> None:
    """Put a small file in place at once; whatever had its name goes, a link included."""
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
    """A name of its own for what will be renamed to `path`; it says which host writes it."""
    return path.with_name(f"{path.name}.{host()}_{secrets.token_hex(8)}.part")


def reading(path: Path) -> BinaryIO:
    """A file to read; OSError, and no endless waiting, where it is a pipe, a device or a folder."""
    return os.fdopen(_opened(path, os.O_RDONLY), "rb")


def read_json(path: Path, most: int = _MOST) -> Any:
    """What a JSON file says.

    OSError if it cannot be read; ValueError if it is not JSON, nested too deep or over `most` bytes.
    """
    with reading(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it has over {most:,} bytes")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _opened(path: Path, flags: int) -> int:
    """The handle of a regular file; OSError where it is a pipe, a device or a folder."""
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
    """The mode that was asked for, also where the umask has taken bits from it."""
    if mode is None or sys.platform == "win32":
        return
    if stat.S_IMODE(os.fstat(handle).st_mode) != mode:
        with contextlib.suppress(OSError):  # a file system without modes
            os.fchmod(handle, mode)


def try_lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed; False while another holds it, or where there are no locks."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def host() -> str:
    """The name of this host, as it stands in the name of a file."""
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())
