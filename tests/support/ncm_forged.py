"""Snapshots of NCM forests with one or two whole numbers changed and a checksum that fits.

Run by itself (`python -m support.ncm_forged seed files`) it loads that many files, lets each model that comes
of it learn 500 events, and prints the change before it looks at it: whoever started it knows what hangs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from safetensors.numpy import save as to_bytes

from streamforest import NCMForestClassifier
from streamforest.errors import InputError, SnapshotError
from streamforest.forests.persistence import snapshot
from streamforest.forests.persistence.snapshot import decode, encode
from support.events import growing_stream

EXTREMES = (
    -1, 0, 1, 2, 8, 63, 64, 65, 2**31 - 1, -(2**31), 2**31, 2**40, 2**53, 2**53 + 1, 2**62, -(2**62),
)  # fmt: skip
_VARIANTS: tuple[dict[str, Any], ...] = (
    {"strategy": "rolling"},
    {"strategy": "hirf"},
    {"strategy": "rust", "mu": 2},
    {"strategy": "rtst", "split": "svm", "n_planes": 3},
    {"metric": "full", "bagging": True},
    {"metric": "whitened", "memory": 300},
)


def sealed(tensors: dict[str, np.ndarray], content: dict[str, Any]) -> bytes:
    """A file whose checksum fits, so that the checks behind it are met."""
    content = {k: v for k, v in content.items() if k != "sha256"}
    content["sha256"] = snapshot._digest(content, tensors)
    return to_bytes(tensors, {"streamforest": snapshot._canonical(content)})


def under_way(**parameters: Any) -> NCMForestClassifier:
    """A forest with two trees, and two more that are under way."""
    forest = NCMForestClassifier(n_trees=2, seed=3, swap_after=128, event_credit=5.0, **parameters)
    forest.advance(*(part[:730] for part in growing_stream(1_500)))
    return forest


def changed(data: bytes, field: str, at: int, value: int) -> bytes:
    """The snapshot of one forest with another number in one of its arrays."""
    tensors, content = snapshot._parse(data)
    name = f"models/main/0/{field}"
    tensors[name] = tensors[name].copy()
    tensors[name][at] = value
    return sealed(tensors, content)


def forged(rng: np.random.Generator, data: bytes) -> Iterator[tuple[str, bytes]]:
    """What was changed, and the file; without end."""
    tensors, content = snapshot._parse(data)
    names = sorted(name for name, a in tensors.items() if a.dtype.kind in "iu" and len(a))
    while True:
        arrays, meta, what = dict(tensors), json.loads(json.dumps(content)), []
        for _ in range(1 if rng.random() < 0.75 else 2):
            if rng.random() < 0.07:
                step = meta["models"]["main"]["steps"][0]
                fields = sorted(k for k, v in step["params"].items() if type(v) is int)
                field = fields[int(rng.integers(0, len(fields)))]
                holder = step if rng.random() < 0.3 else step["params"]
                field = "learned" if holder is step else field
                holder[field] = _other(rng, holder[field])
                what.append(f"{field}={holder[field]}")
                continue
            name = names[int(rng.integers(0, len(names)))]
            array = arrays[name].copy()
            at = int(rng.integers(0, len(array)))
            least, most = (int(getattr(np.iinfo(array.dtype), end)) for end in ("min", "max"))
            value = min(max(_other(rng, int(array[at])), least), most)
            array[slice(None) if rng.random() < 0.2 else at] = value
            arrays[name] = array
            what.append(f"{name}[{at}]={value}")
        yield ", ".join(what), sealed(arrays, meta)


def _other(rng: np.random.Generator, old: int) -> int:
    if rng.random() < 0.4:
        return old + int(rng.choice([-64, -1, 1, 64]))
    return EXTREMES[int(rng.integers(0, len(EXTREMES)))]


def main(seed: int, files: int) -> None:
    """Load forged files and let what comes of them learn."""
    rng = np.random.default_rng(seed)
    streams = [forged(rng, encode({"main": under_way(**variant)})) for variant in _VARIANTS]
    xs, ys = growing_stream(500, seed=1)
    refused = 0
    for number in range(files):
        what, data = next(streams[number % len(streams)])
        print(f"{number}: {_VARIANTS[number % len(streams)]} {what}", flush=True)
        try:
            forest = decode(data)[0]["main"]
        except SnapshotError:
            refused += 1
            continue
        try:
            for x, y in zip(xs[:100], ys[:100]):
                forest.predict_one(x)
                forest.learn_one(x, y)
            forest.advance(xs[100:], ys[100:])
        except InputError:
            continue  # a bound that was changed: refused, not broken
        decode(encode({"main": forest}))
    print(f"refused {refused}, ran {files - refused}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
