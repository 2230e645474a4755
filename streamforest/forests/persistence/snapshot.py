"""Snapshots: one `.safetensors` file per model, pipeline or group of models.

The file is canonical: no clock, no host, no run-time setting, mappings in a fixed order, arrays without
slack. Two models of one kind, the same parameters and the same events write the same bytes. All metadata
is one JSON string (UTF-8) under one key, since the format keeps no order among several. A header may have
100 MB at most, which a full label store exceeds: text beyond some megabytes is an array of bytes instead,
and the key says so. When and where it was written, and with which packages, stands in a `.json` sidecar
that may be lost.

Nothing here unpickles: a file is numbers and JSON, and both are checked before a model is made of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import re
import socket
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from river import compose
from safetensors.numpy import save as to_bytes

from streamforest._version import __version__
from streamforest.errors import SnapshotError
from streamforest.forests.core import registry, serialization
from streamforest.forests.core.base import Forest
from streamforest.forests.persistence import categories, old_formats, transformers
from streamforest.object_files import ObjectFolder, is_address
from streamforest.private_files import create, part_of, reading, replace
from streamforest.private_files import host as host
from streamforest.private_files import try_lock as try_lock

FORMAT = 2
_OBJECT = re.compile(r"s-\d{12,}\.safetensors")
_OLD_FORMAT = 1  # still read: metadata in ASCII, other names, see `old_formats`
_KEY = "streamforest"
_METADATA = "metadata"
_IN_ARRAY = {"format": FORMAT, "metadata": "array"}  # in the header of a file with much metadata
_OLD_IN_ARRAY = {"format": 2}  # the same in files of format 1
_MAX_HEADER = 32 << 20  # bytes of metadata; quoted once more they may double
_SURROGATE = re.compile("[\ud800-\udfff]")
_ABANDONED = 3_600  # seconds
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "I64": np.int64,
    "I32": np.int32,
    "U64": np.uint64,
    "U8": np.uint8,
}

Model = Forest | compose.Pipeline


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a forest, or a River pipeline that ends in one, to `path`."""
    write(path, {"main": model})


def load(path: str | os.PathLike[str], model: str = "main") -> Any:
    """The forest or pipeline that `save` wrote: it goes on bit for bit as if never saved.

    A snapshot of `streamforest run` holds the shadows beside the main model, by their names. A run folder
    stands for its newest snapshot; so does a prefix in object storage, such as "s3://bucket/orders".
    """
    if isinstance(path, str) and is_address(path):
        models = _read_object(path)
    else:
        path = newest(Path(path)) if os.path.isdir(path) else path
        models, _ = read(path)
    if model not in models:
        raise SnapshotError(f"{path} holds no model {model!r}; it has {', '.join(sorted(models))}")
    return models[model]


def _read_object(address: str) -> dict[str, Any]:
    """The models of a snapshot in object storage, or of the newest one with a prefix."""
    folder, _, name = address.rstrip("/").rpartition("/")
    try:
        if not name.endswith(".safetensors"):
            folder = address.rstrip("/")
            names = [n for n in ObjectFolder(folder).names() if _OBJECT.fullmatch(n)]
            if not names:
                raise SnapshotError(f"{folder} holds no snapshot; expected a prefix or a file")
            name = max(names, key=lambda n: (len(n), n))
        data = ObjectFolder(folder).read(name)
    except OSError as error:
        raise SnapshotError(f"{folder}/{name}: {error.strerror}") from error
    try:
        return decode(data)[0]
    except SnapshotError as error:
        raise SnapshotError(f"{folder}/{name}: {error}") from error


def newest(folder: Path) -> Path:
    """The newest snapshot of a run folder, or of the folder `snapshots` in it."""
    found = [*folder.glob("s-*.safetensors"), *folder.glob("snapshots/s-*.safetensors")]
    if found:
        return max(found, key=lambda path: (len(path.name), path.name))
    parts = ", ".join(sorted(path.name for path in folder.glob("partition-*"))[:5])
    remedy = (
        f"give the folder of a partition: {parts}" if parts else "expected a run folder or a file"
    )
    raise SnapshotError(f"{folder} holds no snapshot; {remedy}")


def write(
    path: str | os.PathLike[str],
    models: Mapping[str, Model],
    runtime: Mapping[str, Any] | None = None,
) -> None:
    """Write several models and the runtime's own JSON-able state as one file, atomically."""
    write_bytes(Path(path), encode(models, runtime))


def write_bytes(
    path: Path,
    data: bytes,
    passing: Callable[[str], None] = lambda step: None,
    mode: int | None = None,
) -> None:
    """Put the bytes of a snapshot in place atomically, its sidecar beside them.

    `passing` is told before and after each step that a crash could fall between. Without a `mode` the
    file gets what the process gives its files. No link is followed, whatever its name.
    """
    part = part_of(path)
    try:
        with create(part, mode) as file:
            try_lock(file)  # says that the writer lives: given up with it, whatever ends it
            passing("before-snapshot-write")
            file.write(data)
            file.flush()
            passing("after-snapshot-write")
            passing("before-snapshot-fsync")
            os.fsync(file.fileno())
            passing("after-snapshot-fsync")
            passing("before-snapshot-rename")
            os.replace(part, path)
        sync_folder(path.parent)
        passing("after-snapshot-rename")
    except OSError as error:
        part.unlink(missing_ok=True)
        raise SnapshotError(f"cannot write the snapshot {path}: {error.strerror}") from error
    with contextlib.suppress(OSError):  # the sidecar may be lost
        told = json.dumps(provenance(), indent=1) + "\n"
        replace(Path(f"{path}.json"), told.encode(), mode)


def sweep(folder: Path, pattern: str) -> None:
    """Delete the parts that a killed writer has left behind.

    On this host a lock tells whether the writer lives. Hosts that share a folder need not see each
    other's locks, so of others only what nobody has written to for long is deleted.
    """
    for part in folder.glob(f"{pattern}.*_*.part"):
        with contextlib.suppress(OSError):  # somebody else was first, or may not be disturbed
            if part.name.split(".")[-2].rpartition("_")[0] == host():
                with reading(part) as file:
                    dead = try_lock(file)
            else:
                dead = time.time() - part.stat().st_mtime > _ABANDONED
            if dead:
                part.unlink()


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The models of a file by name, and the runtime's state."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SnapshotError(f"cannot read the snapshot {path}: {error.strerror}") from error
    try:
        return decode(data)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from error


def encode(models: Mapping[str, Model], runtime: Mapping[str, Any] | None = None) -> bytes:
    """The canonical bytes of a snapshot."""
    tensors: dict[str, NDArray[Any]] = {}
    described: dict[str, dict[str, Any]] = {}
    for name in sorted(models):
        if not _NAME.fullmatch(name):
            raise SnapshotError(f"model name {name!r}: use letters, digits, '_', '.', '-'")
        steps, is_pipeline = _steps(models[name])
        described[name] = {"pipeline": is_pipeline, "steps": []}
        for number, (step_name, step) in enumerate(steps):
            if isinstance(step, Forest):
                meta, arrays = serialization.dump(step)
                for field, array in arrays.items():
                    tensors[f"models/{name}/{number}/{field}"] = np.ascontiguousarray(array)
            else:
                meta = transformers.dump(step)
            described[name]["steps"].append({"name": step_name, **meta})
    state = {k: dict(v) if type(v) is dict else v for k, v in (runtime or {}).items()}
    content: dict[str, Any] = {"format": FORMAT, "models": described, "runtime": state}
    try:
        content["categories"] = categories.share(list(categories.holders(described, state)))
        content["sha256"] = _digest(content, tensors)
        text = _canonical(content)
    except (TypeError, ValueError) as error:
        raise SnapshotError(
            f"a parameter or the runtime's state cannot be written as JSON: {error}"
        ) from error
    if len(data := text.encode()) > _MAX_HEADER:
        tensors[_METADATA] = np.frombuffer(data, np.uint8)
        text = _canonical(_IN_ARRAY)
    try:
        return to_bytes(tensors, {_KEY: text})
    except safetensors.SafetensorError as error:
        raise SnapshotError(f"a snapshot cannot be made of this: {error}") from error


def decode(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The models and the runtime's state in the bytes of a snapshot, checked throughout."""
    tensors, content = _parse(data)
    if not isinstance(content, dict):
        raise SnapshotError("the snapshot is damaged: its metadata is no object")
    format_ = content.get("format")
    if format_ not in (FORMAT, _OLD_FORMAT):
        raise SnapshotError(
            f"snapshot format {format_!r} is not one that this version reads "
            f"({_OLD_FORMAT}, {FORMAT}): use the version of streamforest that wrote it"
        )
    digest = content.pop("sha256", None)
    try:
        if digest != _digest(content, tensors):
            raise SnapshotError("the snapshot is damaged: its checksum does not fit its content")
        runtime = content["runtime"]
        if format_ == _OLD_FORMAT:
            tensors = old_formats.upgrade(tensors, content["models"])
        else:
            holders = list(categories.holders(content["models"], runtime))
            categories.unfold(holders, content["categories"])
        models = {
            name: _model(name, described, tensors) for name, described in content["models"].items()
        }
    except SnapshotError:
        raise
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        MemoryError,
        RecursionError,
    ) as error:
        raise SnapshotError(f"the snapshot is damaged: {type(error).__name__}: {error}") from error
    if tensors or not isinstance(runtime, dict):
        raise SnapshotError("the snapshot is damaged: it holds arrays of no model")
    return models, runtime


def _steps(model: Model) -> tuple[list[tuple[str, Any]], bool]:
    # River lets a pipeline pass for its last step in isinstance(): the order of questions matters
    if isinstance(model, compose.Pipeline):
        steps = [(str(name), step) for name, step in model.steps.items()]
        if steps and isinstance(steps[-1][1], Forest):
            return steps, True
    elif isinstance(model, Forest):
        return [("forest", model)], False
    raise SnapshotError(
        f"cannot save a {type(model).__name__}: only this package's forests, and River pipelines "
        "with one of them at the end, have a snapshot"
    )


def _model(name: str, described: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Any:
    steps = []
    for number, meta in enumerate(described["steps"]):
        prefix = f"models/{name}/{number}/"
        arrays = {k[len(prefix) :]: tensors.pop(k) for k in list(tensors) if k.startswith(prefix)}
        forest = registry.find_class(meta["class"])
        if forest is not None:
            step = serialization.restore(forest.load(), meta, arrays)
        else:
            step = transformers.restore(meta)
        steps.append((str(meta["name"]), step))
    if not steps or not isinstance(steps[-1][1], Forest):
        raise SnapshotError("the snapshot is damaged: a model does not end in a forest")
    if described["pipeline"] is not True:
        if len(steps) != 1:
            raise SnapshotError("the snapshot is damaged: a forest with several steps")
        return steps[0][1]
    if len({step_name for step_name, _ in steps}) != len(steps):
        raise SnapshotError("the snapshot is damaged: two steps of one name")
    return compose.Pipeline(*steps)


def _parse(data: bytes) -> tuple[dict[str, NDArray[Any]], Any]:
    """Tensors and metadata of a safetensors file; the library checks offsets and lengths."""
    try:
        tensors = {}
        for name, tensor in safetensors.deserialize(data):  # type: ignore[no-untyped-call]
            # a bytearray of its own, so that no second copy is needed
            array = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]])
            tensors[name] = array.reshape(tensor["shape"])
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        content = _from_json(header["__metadata__"][_KEY])
        if content in (_IN_ARRAY, _OLD_IN_ARRAY):
            content = _from_json(tensors.pop(_METADATA).tobytes())
        return tensors, content
    except (
        safetensors.SafetensorError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
        MemoryError,
    ) as error:
        raise SnapshotError(
            f"not a snapshot, or a damaged one: {type(error).__name__}: {error}"
        ) from error


def _from_json(text: str | bytes) -> Any:
    return json.loads(text, parse_constant=_no_constant, parse_float=_finite)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} in the metadata")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} in the metadata is beyond all numbers")
    return number


def _canonical(content: Any, ascii_only: bool = False) -> str:
    """JSON in one form only. A lone surrogate, which UTF-8 cannot hold, is written as an escape."""
    text = json.dumps(
        content,
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
        ensure_ascii=ascii_only,
    )
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _digest(content: dict[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over the metadata and every array with its name, type and shape."""
    text = _canonical(content, ascii_only=content["format"] == _OLD_FORMAT)
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make the rename itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def provenance() -> dict[str, Any]:
    """When, where and with what: the bits of a replay are promised for these versions only."""
    versions = {"streamforest": __version__, "python": platform.python_version()}
    for package in ("numpy", "numba", "llvmlite", "river", "safetensors"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    return {
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "versions": versions,
    }
