"""Files of a run in object storage: S3, Google Cloud Storage or Azure, by obstore.

An object is there whole or not at all: a put becomes visible with its last byte, a large one with the request
that joins its parts. So there is nothing to rename and nothing to fsync; a put that was cut off has left
nothing under its name. What was put is read back and compared before anybody is told of it.

Why obstore: it is the Rust crate `object_store`, which many databases rely on, with conditional puts, uploads
in parts that are retried one by one, and one interface to all three. It needs no event loop and has no
dependencies of its own; fsspec would need another package for each store, and has no conditional puts.

Credentials are never part of an address. They come from the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`) or
from the machine's role. Every failure is an OSError with one line that says what was asked of which address.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from streamforest.errors import ConfigError
from streamforest.text import printable

SCHEMES = ("s3", "gs", "az")
CHUNK = 16 << 20
"""Bytes of a part of an upload, and of what is read at a time."""
_RETRY = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=90),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}
_CLIENT = {"timeout": "60s", "connect_timeout": "5s"}
_MAX_MESSAGE = 300
_QUERY = re.compile(r"\?\S+")  # of an address in an error: a signature may be in it


def is_address(text: str) -> bool:
    """Whether a text is the address of a folder in object storage.

    >>> [is_address(text) for text in ("s3://bucket/runs/orders", "s3://", "file:///runs", "runs/orders")]
    [True, False, False, False]
    """
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme in SCHEMES and bool(parts.netloc) and plain and ".." not in parts.path


class ObjectFolder:
    """Objects whose names begin with the same prefix, as a folder of files. May be used from any thread."""

    def __init__(self, address: str) -> None:
        """ConfigError if obstore is not installed or the address is none."""
        if not is_address(address):
            raise ConfigError(
                f"{printable(address, 200)}: expected an address such as 's3://bucket/prefix' "
                f"({', '.join(SCHEMES)}), without a password; credentials come from the environment"
            )
        self.address = address.rstrip("/")
        self._store = _store(self.address)

    def __str__(self) -> str:
        return self.address

    def child(self, name: str) -> ObjectFolder:
        """A folder in this one."""
        return ObjectFolder(f"{self.address}/{name}")

    def read(self, name: str, limit: int | None = None) -> bytes:
        """The content of an object; FileNotFoundError if there is none. ValueError if it is over `limit`
        bytes.
        """
        import obstore

        with _Asking(self, "read", name):
            found = obstore.get(self._store, name)
            if limit is not None and found.meta["size"] > limit:
                raise ValueError(f"it has over {limit:,} bytes")
            return bytes(found.bytes())

    def write(self, name: str, data: bytes) -> None:
        """Put an object in place of whatever has its name."""
        import obstore

        with _Asking(self, "write", name):
            obstore.put(self._store, name, data, chunk_size=CHUNK, max_concurrency=4)

    def check(self, name: str, data: bytes) -> None:
        """Read an object back; OSError unless it is what was put."""
        import obstore

        with _Asking(self, "read", name):
            wanted, found = hashlib.blake2b(data), hashlib.blake2b()
            size = 0
            for part in obstore.get(self._store, name).stream(min_chunk_size=CHUNK):
                size += len(part)
                if size > len(data):
                    break
                found.update(part)
        if size != len(data) or found.digest() != wanted.digest():
            raise OSError(
                errno.EIO, "the object that was written is another one when it is read", str(self)
            )

    def create(self, name: str, data: bytes) -> bool:
        """Put an object if none has its name; whether it was put."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with _Asking(self, "write", name):
            try:
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def names(self) -> list[str]:
        """The names of the objects in this folder, not in those below it."""
        import obstore

        with _Asking(self, "list", ""):
            found = obstore.list_with_delimiter(self._store)
            return sorted(one["path"].rpartition("/")[2] for one in found["objects"])

    def stat(self, name: str) -> tuple[int, float]:
        """Size in bytes, and when it was written (seconds since 1970); FileNotFoundError if there is none."""
        import obstore

        with _Asking(self, "ask for", name):
            found = obstore.head(self._store, name)
            return int(found["size"]), float(found["last_modified"].timestamp())

    def exists(self, name: str) -> bool:
        """Whether there is an object of this name."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def delete(self, name: str) -> None:
        """Delete an object; one that is gone already is no error."""
        import obstore

        try:
            with _Asking(self, "delete", name):
                obstore.delete(self._store, name)
        except FileNotFoundError:
            return


def _store(address: str) -> Any:
    try:
        from obstore.store import from_url
    except ImportError:
        raise ConfigError(
            f"{address}: needs obstore: pip install 'streamforest[objects]'"
        ) from None
    try:
        options: Any = {**_CLIENT, "allow_http": _allows_http(os.environ)}
        retry: Any = _RETRY
        return from_url(address, client_options=options, retry_config=retry)
    except Exception as error:  # obstore has an error for each of its stores
        raise ConfigError(f"{address}: {_said(error)}") from error


def _allows_http(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for a store without TLS, as one on this machine or in a cluster."""
    names = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")
    return any(environ.get(name, "").lower() == "true" for name in names)


class _Asking:
    """While entered, an error of obstore becomes an OSError."""

    def __init__(self, folder: ObjectFolder, verb: str, name: str) -> None:
        self._folder, self._verb, self._name = folder, verb, name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception) or isinstance(error, ValueError):
            return
        where = f"{self._folder}/{self._name}".rstrip("/")
        if "NoSuchBucket" in str(error):
            missing = "no such bucket; create it, or correct run.snapshots"
            raise OSError(errno.ENXIO, missing, where) from error
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(errno.ENOENT, "no such object", where) from error
        number = errno.EACCES if _is_refusal(error) else errno.EIO
        raise OSError(number, f"cannot {self._verb} it: {_said(error)}", where) from error


def _is_refusal(error: Exception) -> bool:
    refused = ("PermissionDeniedError", "UnauthenticatedError")
    return isinstance(error, PermissionError) or type(error).__name__ in refused


def _said(error: Exception) -> str:
    """What an error says, in one line without the query of any address."""
    text = " ".join(str(error).split("Debug source")[0].split())
    return f"{type(error).__name__}: {printable(_QUERY.sub('?…', text), _MAX_MESSAGE)}"
