"""Forged snapshots: numbers of a valid file replaced by others, with a checksum that fits.

Each ends in a `SnapshotError`, or in a model that goes on for 500 events. Both happen in a child
process that says what it is about to do: a forgery that hangs it, kills it or takes its memory is a
failure with a name, and never a suite that stands still. Run as a program this module is that child.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from river import preprocessing
from safetensors.numpy import save as to_bytes

import streamforest
from streamforest.errors import InputError, SnapshotError
from streamforest.forests.persistence import snapshot
from streamforest.forests.persistence.snapshot import decode, encode

if __package__:
    from support.events import growing_stream
else:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from support.events import growing_stream

EVENTS = 500
_MEMORY = 8 << 30
_SECONDS_TO_COMPILE = 1_800.0  # with all indices checked, on a busy machine
_LOADING, _READY, _RAISED = "loading", "ready", "raised"
_EXTREMES = (-1, 0, 2**31 - 1, 2**31, 2**40, 2**53 - 1, 2**53, 2**62)
_FLOATS = (-1.0, 0.0, 0.5, 1.0, 1e15, 1e38, 1e300, 5e-324, float("nan"), float("inf"))
_BOUNDED: dict[str, dict[str, Any]] = {
    "AutoForestClassifier": {"max_ring_bytes": 80_000, "memory": 200, "swap_after": 128},
    "ConsistentForestClassifier": {"max_fringe_bytes": 20_000, "alpha0": 2},
    "FewShotForestClassifier": {"memory": 200, "regrow": 0.1, "few_rows": 20},
    "NCMForestClassifier": {"memory": 200, "swap_after": 128, "strategy": "hirf"},
    "OnlineForestClassifier": {"max_fringe_bytes": 20_000, "min_samples": 10, "gamma": 0.001},
    "StreamForestClassifier": {"max_ring_bytes": 80_000, "challenge_rate": 0.02},
}
"""Parameters that make a forest of some hundred events have everything a forest can have."""


class Forgery(NamedTuple):
    """One number of one field, and what is put in its place."""

    field: str  # name of an array, or path in the metadata
    at: int  # index in the array; -1: in the metadata
    value: Any

    def __str__(self) -> str:
        place = f"[{self.at}]" if self.at >= 0 else ""
        return f"{self.field}{place} = {self.value!r}"


def valid(kind: str) -> bytes:
    """A snapshot of a pipeline that ends in a forest of this kind."""
    xs, ys = growing_stream(2 * EVENTS)
    params = {"n_trees": 2, "seed": 2, **_BOUNDED.get(kind, {})}
    model = getattr(streamforest, kind)(**params)
    model.advance(xs[:EVENTS], ys[:EVENTS])
    scaler = preprocessing.StandardScaler()
    for x in xs[:20]:
        scaler.learn_one({name: value for name, value in x.items() if type(value) is float})
    return encode({"main": scaler | model})


def forgeries(data: bytes, seed: int) -> list[Forgery]:
    """Every forgery there is of a file, in a drawn order: all fields, some places in each."""
    tensors, content = snapshot._parse(data)
    rng = np.random.default_rng(seed)
    out: list[Forgery] = []
    for name, array in sorted(tensors.items()):
        for at in _places(rng, array):
            out += [Forgery(name, at, value) for value in _values(array, at)]
    for path, old in _numbers(content["models"], "models"):
        out += [Forgery(path, -1, value) for value in _others(old)]
    order = rng.permutation(len(out))
    return [out[k] for k in order]


def _places(rng: np.random.Generator, array: Any, most: int = 12) -> list[int]:
    """Places in an array: all of a short one, else the ends, the extremes and some drawn ones."""
    if len(array) <= most:
        return list(range(len(array)))
    known = {0, len(array) - 1, int(np.argmax(array)), int(np.argmin(array))}
    return sorted(known | set(rng.integers(0, len(array), most - len(known)).tolist()))


def _values(array: Any, at: int) -> list[Any]:
    if array.dtype.kind == "f":
        return [v for v in _FLOATS if v != float(array[at]) and (array.itemsize == 8 or v != 1e300)]
    info = np.iinfo(array.dtype)
    return [v for v in _others(int(array[at])) if info.min <= v <= info.max]


def _others(old: Any) -> list[Any]:
    if isinstance(old, float):
        return [value for value in (*_FLOATS[:-2], -old) if value != old]
    return sorted({*_EXTREMES, old - 1, old + 1} - {old})


def _numbers(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Path and value of each number in JSON data."""
    if isinstance(value, dict):
        for name in sorted(value):
            yield from _numbers(value[name], f"{path}/{name}")
    elif isinstance(value, list):
        for k, item in enumerate(value):
            yield from _numbers(item, f"{path}/{k}")
    elif type(value) in (int, float):
        yield path, value


def forged(data: bytes, forgery: Forgery) -> bytes:
    """The file with one number replaced."""
    tensors, content = snapshot._parse(data)
    if forgery.at >= 0:
        tensors[forgery.field][forgery.at] = forgery.value
    else:
        *steps, last = forgery.field.split("/")
        inside: Any = content
        for step in steps:
            inside = inside[int(step) if isinstance(inside, list) else step]
        inside[int(last) if isinstance(inside, list) else last] = forgery.value
    return sealed(tensors, content)


def sealed(tensors: dict[str, Any], content: dict[str, Any]) -> bytes:
    """A file with a checksum that fits, so that the checks behind it are met."""
    content = {name: value for name, value in content.items() if name != "sha256"}
    content["sha256"] = snapshot._digest(content, tensors)
    return to_bytes(tensors, {"streamforest": snapshot._canonical(content)})


def go_on(data: bytes) -> bool:
    """Whether the file loads; then its model goes on for 500 events, alone and in its pipeline."""
    try:
        loaded = decode(data)[0]["main"]
    except SnapshotError:
        return False
    xs, ys = growing_stream(2 * EVENTS)
    scaler, forest = loaded.steps.values()
    scaler.learn_one({"f0": 1.5, "f1": -2.5})
    scaler.transform_one({"f0": 1.5, "f1": -2.5})
    half = EVENTS + EVENTS // 2
    for a in range(EVENTS, half, 50):
        with contextlib.suppress(InputError):  # a bound that was lowered, say: refused, not broken
            forest.advance(xs[a : a + 50], ys[a : a + 50])
    for x, y in zip(xs[half:], ys[half:]):
        with contextlib.suppress(InputError):
            forest.predict_one(x)
            forest.learn_one(x, y)
    forest.summary()
    encode({"main": forest})
    return True


# ---- the child and its parent


class Outcome(NamedTuple):
    """What became of some forgeries."""

    refused: int
    accepted: int
    failures: list[str]


def try_forgeries(
    kinds: list[str],
    each: int,
    seed: int,
    seconds: float,
    environment: dict[str, str] | None = None,
) -> Outcome:
    """So many forgeries of each kind, each within its time."""
    refused = accepted = 0
    failures: list[str] = []
    todo = [(kind, k) for kind in kinds for k in range(each)]
    while todo:
        child = _Child(todo, seed, environment or {})
        left = iter(todo)
        todo = []
        try:
            for kind, k in left:
                said = child.hear(seconds)
                if said in ("refused", "accepted"):
                    refused += said == "refused"
                    accepted += said == "accepted"
                elif said != "none":
                    failures.append(f"{kind}: {forgeries(valid(kind), seed)[k]}: {said}")
                    if not said.startswith(_RAISED):  # it hangs or is gone: a new child goes on
                        todo = list(left)
        finally:
            child.end()
    return Outcome(refused, accepted, failures)


class _Child:
    """A process that works through forgeries and says a line on each."""

    def __init__(self, todo: list[tuple[str, int]], seed: int, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "STREAMFOREST_QUIET": "1", **environment},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._errors: list[str] = []
        self._ready = False
        self._threads = [
            threading.Thread(target=target, daemon=True)
            for target in (self._read, self._read_errors, lambda: self._write(json.dumps(todo)))
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, text: str) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(text)

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put("")

    def _read_errors(self) -> None:
        assert self._process.stderr
        self._errors.extend(self._process.stderr)

    def hear(self, seconds: float) -> str:
        """What it says of the next forgery, in so many seconds; getting ready has time of its own."""
        limit = seconds if self._ready else _SECONDS_TO_COMPILE
        try:
            said = self._lines.get(timeout=limit)
        except queue.Empty:
            return f"no answer within {limit:g} s"
        self._ready = said != _LOADING
        if said in (_LOADING, _READY):
            return self.hear(seconds)
        if said:
            return said
        self._process.wait()
        self._threads[1].join()
        return f"exit {self._process.returncode}: {''.join(self._errors[-3:])}"

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()


def _main() -> None:
    seed = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    kind = ""
    data = b""
    made: list[Forgery] = []
    for next_kind, k in json.loads(sys.stdin.read()):
        if next_kind != kind:
            print(_LOADING, flush=True)
            kind, data = next_kind, valid(next_kind)
            made = forgeries(data, seed)
            go_on(data)  # loads all kernels, so that the time of a forgery is its own
            print(_READY, flush=True)
        if k >= len(made):
            print("none", flush=True)
            continue
        try:
            print("accepted" if go_on(forged(data, made[k])) else "refused", flush=True)
        except Exception as error:
            text = f"{_RAISED} {type(error).__name__}: {str(error)[:200]}"
            print(text.replace("\n", " "), flush=True)


if __name__ == "__main__":
    _main()
