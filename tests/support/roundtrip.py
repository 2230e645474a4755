"""The oracle of snapshots: save, load, save again, compare bytes.

Whatever a forest has learned, it can be saved; what it saved, it loads; what it loads, it saves as the
same bytes. Every condition that loading demands is thereby held against learning itself. `ZOO` has
streams of events that have broken such conditions or might: each is a generator of (features, label)
without end. `run` takes a forest through one of them, and now and then goes on with the forest it has
loaded, which must in the end be the same bits as a twin that was never saved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import streamforest
from streamforest.errors import InputError
from streamforest.forests.core import registry
from streamforest.forests.persistence import snapshot
from streamforest.forests.persistence.snapshot import decode, encode

Event = tuple[dict[Any, Any], Any]
Stream = Callable[[np.random.Generator], Iterator[Event]]

DENSE = 300
"""Events after each of which a long run makes a round trip; beyond it they are drawn."""

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_NCM_MAX = 1e15
_BATCHES = (1, 2, 7, 64, 65, 200)


# ---- the zoo


def _late_class(rng: np.random.Generator, i: int, every: int = 25, most: int = 40) -> int:
    """A class that may be new: one more of them `every` so many events."""
    return int(rng.integers(0, 1 + min(most, i // every)))


def prices(rng: np.random.Generator) -> Iterator[Event]:
    """Random walks of two decimals, a new class every 25 events."""
    level = np.array([1.0, 37.5, 104.2, 5_811.0, 0.0213])
    i = 0
    while True:
        level *= np.exp(0.002 * rng.normal(size=len(level)))
        x = {f"p{j}": round(float(v), 2 if v > 1 else 6) for j, v in enumerate(level)}
        yield x, f"class {_late_class(rng, i)}"
        i += 1


def scales(rng: np.random.Generator) -> Iterator[Event]:
    """Columns from 1e-12 to 1e12 side by side, and one that runs through all of them."""
    i = 0
    while True:
        x = {f"s{e}": float(rng.normal(1.0, 0.3)) * 10.0**e for e in range(-12, 13, 4)}
        x["any"] = float(rng.normal()) * 10.0 ** int(rng.integers(-12, 13))
        x["far"] = 1e12 + float(rng.normal())
        yield x, _late_class(rng, i)
        i += 1


def integers(rng: np.random.Generator) -> Iterator[Event]:
    """Counts, codes of few and of many values, and bools; labels are numbers too."""
    i = 0
    while True:
        y = _late_class(rng, i, every=40, most=9)
        yield (
            {
                "few": int(rng.integers(0, 4)) + y % 3,
                "sixteen": int(rng.integers(0, 16 + i // 100)),
                "many": int(rng.integers(-(10**9), 10**9)),
                "flag": bool(rng.random() < 0.3),
                "count": i,
            },
            y,
        )
        i += 1


def constants(rng: np.random.Generator) -> Iterator[Event]:
    """Columns that never change, or only once after a long while."""
    i = 0
    while True:
        yield (
            {
                "zero": 0.0,
                "one": 1,
                "third": 1.0 / 3.0,
                "later": 0.1 if i < 150 else 0.1 + 1e-9,
                "tiny": 1e-300,
                "big": 1e14 / 3.0,
                "word": "same",
            },
            _late_class(rng, i, every=10, most=3),
        )
        i += 1


def sparse(rng: np.random.Generator) -> Iterator[Event]:
    """A few of many columns at a time; some rows have none at all."""
    i = 0
    while True:
        names = rng.choice(30, size=int(rng.integers(0, 5)), replace=False).tolist()
        x = {
            f"w{j}": float(rng.integers(1, 4)) if j % 2 else float(rng.exponential()) for j in names
        }
        yield x, ("a", "b", "c")[(sum(names) + i // 200) % 3]
        i += 1


def timestamps(rng: np.random.Generator) -> Iterator[Event]:
    """Seconds, milliseconds and nanoseconds of now: large numbers that hardly differ."""
    now = 1.7e9
    i = 0
    while True:
        now += float(rng.exponential(3.0))
        yield (
            {
                "s": now,
                "ms": int(now * 1e3),
                "us": int(now * 1e6) % 10**15,
                "hour": int(now // 3600) % 24,
            },
            ("day", "night", 3, 4.5)[int(now // 3_000 + i // 25) % 4],
        )
        i += 1


def bounds(rng: np.random.Generator) -> Iterator[Event]:
    """Values at and around the bounds of number formats; what a forest cannot hold it refuses."""
    edges = [0.0, -0.0, 5e-324, 1e-45, 1e-38, 1e-30, 1e-15, 1.0, np.nextafter(1.0, 2.0)]
    edges += [_NCM_MAX, np.nextafter(_NCM_MAX, 0.0), 2.0**53, 2.0**63, 1e30, _FLOAT32_MAX]
    edges += [np.nextafter(_FLOAT32_MAX, 0.0), 1e100, 1.7976931348623157e308]
    i = 0
    while True:
        most = (_NCM_MAX, _FLOAT32_MAX, math.inf)[int(rng.integers(0, 3))]
        within = [e for e in edges if e <= most]
        x = {}
        for j in range(4):
            value = float(within[int(rng.integers(0, len(within)))])
            x[f"b{j}"] = -value if rng.random() < 0.5 else value
        yield x, _late_class(rng, i, every=10, most=12)
        i += 1


def categories(rng: np.random.Generator) -> Iterator[Event]:
    """Words, more of them all the time; numbers among them; a column of numbers beside."""
    i = 0
    while True:
        shop = int(rng.integers(0, 3 + i // 4))
        x: dict[Any, Any] = {"shop": f"s{shop}", "day": ("mo", "tu", "we", "é")[shop % 4]}
        x["odd"] = f"o{shop % 70}" if rng.random() < 0.8 or i == 0 else float(shop % 5)
        x["size"] = float(rng.normal()) + shop % 2
        yield x, f"{(shop * 7) % 5}"
        i += 1


def gaps(rng: np.random.Generator) -> Iterator[Event]:
    """Values that are missing, absent or come back after a long while."""
    i = 0
    while True:
        y = int(rng.integers(0, 3))
        x: dict[Any, Any] = {}
        for j in range(6):
            draw = rng.random()
            if j == 5 and 40 < i < 240:
                continue
            if draw < 0.6:
                x[f"g{j}"] = float(rng.normal() + y * (j % 3)) if j != 4 else f"c{y}"
            elif draw < 0.8:
                x[f"g{j}"] = None
        yield x, y
        i += 1


def late(rng: np.random.Generator) -> Iterator[Event]:
    """Columns and classes that appear late, some of them together, some only once."""
    i = 0
    while True:
        x: dict[Any, Any] = {"a": float(rng.normal())}
        for j in range(min(12, i // 20)):
            x[f"late{j}"] = f"v{int(rng.integers(0, 4))}" if j % 5 == 2 else float(rng.normal() + j)
        if i % 61 == 60:
            x[i] = 1.5  # a name that is a number, seen once
        y: Any = f"class {_late_class(rng, i, every=20, most=15)}"
        if i % 97 == 96:
            y = i
        yield x, y
        i += 1


def everything(rng: np.random.Generator) -> Iterator[Event]:
    """All of the above in one row."""
    streams = [stream(rng) for name, stream in ZOO.items() if name not in ("everything", "bounds")]
    while True:
        events = [next(stream) for stream in streams]
        row = {name: value for x, _ in events for name, value in x.items()}
        yield row, events[0][1]


def turns(rng: np.random.Generator) -> Iterator[Event]:
    """Long quiet classes: what has faded comes back; and the meaning of everything turns round."""
    i = 0
    while True:
        phase = (i // 400) % 3
        y = phase if rng.random() < 0.97 else int(rng.integers(0, 3))
        centre = 100.0 * y if phase < 2 else -100.0 * y
        x = {f"t{j}": centre + 0.01 * float(rng.integers(-300, 300)) + j for j in range(3)}
        yield x, y
        i += 1


ZOO: dict[str, Stream] = {
    "prices": prices,
    "scales": scales,
    "integers": integers,
    "constants": constants,
    "sparse": sparse,
    "timestamps": timestamps,
    "bounds": bounds,
    "categories": categories,
    "gaps": gaps,
    "late": late,
    "turns": turns,
    "everything": everything,
}


# ---- forests


class Made(NamedTuple):
    """A forest of some kind with parameters that make its bounds matter."""

    kind: str
    params: dict[str, Any]

    def __str__(self) -> str:
        values = "-".join(str(value) for value in self.params.values())
        return (
            f"{self.kind.removesuffix('ForestClassifier').lower()}{'-' + values if values else ''}"
        )

    def model(self, seed: int) -> Any:
        """A new one."""
        kind = getattr(streamforest, self.kind)
        return kind(**{"n_trees": 3, "seed": seed, **self.params})


_BOUNDED: dict[str, list[dict[str, Any]]] = {
    "AutoForestClassifier": [
        {"memory": 150, "swap_after": 32, "blend_decay": 0.9},
        {"ring_rows": 300, "max_ring_bytes": 20_000, "max_nodes": 31, "memory": 100},
    ],
    "ConsistentForestClassifier": [
        {"alpha0": 1, "tau": 0.001, "lam": 2.0},
        {"max_fringe_bytes": 20_000, "max_nodes": 41, "voting": "hard", "p_ignore": 0.1},
        {"balanced": True, "tau": 0.001},
    ],
    "FewShotForestClassifier": [
        {"memory": 100, "regrow": 0.1},
        {"memory": 64, "few_rows": 3, "max_few": 3, "level_rows": 0, "n_candidates": 1},
        {"few_rows": 0, "balanced": False, "max_memory_bytes": 20_000},
    ],
    "OnlineForestClassifier": [
        {"min_samples": 8, "min_gain": 0.01},
        {"min_samples": 10, "gamma": 0.01, "max_fringe_bytes": 8_000, "max_depth": 4},
        {"min_samples": 8, "gamma": 0.01, "balanced": True},
    ],
    "StreamForestClassifier": [
        {"challenge_rate": 0.02, "balanced": True},
        {"ring_rows": 300, "max_ring_bytes": 20_000, "max_nodes": 31, "relevance": 10.0},
        {"max_plain_bytes": 40_000, "challenge_rate": 0.05, "trial_events": 40},
    ],
    "NCMForestClassifier": [
        {"memory": 150, "swap_after": 32},
        {"memory": 100, "strategy": "hirf", "metric": "whitened"},
        {"memory": 100, "strategy": "rust", "swap_after": 64},
    ],
}


def forests() -> list[Made]:
    """Every forest there is, as it comes and with tight bounds; new kinds come by themselves."""
    return [
        Made(kind, params)
        for kind in sorted(forest.class_name for forest in registry.entries())
        for params in ({}, *_BOUNDED.get(kind, []))
    ]


# ---- the oracle


def round_trip(model: Any) -> Any:
    """The model as loaded from what it saves; an AssertionError says where the second save differs."""
    data = encode({"main": model})
    loaded = decode(data)[0]["main"]
    again = encode({"main": loaded})
    assert again == data, f"saved again, these differ: {differing(data, again)}"
    return loaded


def differing(one: bytes, other: bytes) -> list[str]:
    """The names of what is not the same in two snapshots."""
    (a, meta_a), (b, meta_b) = snapshot._parse(one), snapshot._parse(other)
    out = [name for name in sorted(a.keys() | b.keys()) if name not in a or name not in b]
    out += [name for name in sorted(a.keys() & b.keys()) if a[name].tobytes() != b[name].tobytes()]
    if {**meta_a, "sha256": ""} != {**meta_b, "sha256": ""}:
        out.append("metadata")
    return out


def feed(model: Any, events: list[Event]) -> int:
    """Learn these events in one call; one that the forest refuses is left out. Returns how many."""
    if len(events) > 1:
        try:
            model.advance([x for x, _ in events], [y for _, y in events])
        except InputError:
            return sum(feed(model, [event]) for event in events)
        return len(events)
    ((x, y),) = events
    try:
        model.learn_one(x, y)
    except InputError:
        return 0
    return 1


def run(made: Made, zoo: str, trips: int, dense: int, seed: int) -> int:
    """So many round trips: after each of the first `dense` events, then after batches of drawn sizes.

    Returns the number made. A failure names forest, stream, seed and event.
    """
    rng = np.random.default_rng([seed, *zoo.encode()])
    events = ZOO[zoo](np.random.default_rng([seed + 1, *zoo.encode()]))
    model, twin = made.model(seed), made.model(seed)
    learned = 0
    for trip in range(trips):
        size = 1 if trip < dense else int(rng.choice(_BATCHES))
        batch = [next(events) for _ in range(size)]
        before = learned
        try:
            if rng.random() < 0.3:
                model.predict_one(batch[0][0])
        except InputError:
            pass
        learned += feed(model, batch)
        assert feed(twin, batch) == learned - before
        try:
            loaded = round_trip(model)
        except Exception as error:
            error.add_note(f"{made}, {zoo}, seed {seed}: trip {trip}, {learned} events learned")
            raise
        if rng.random() < 0.2:
            model = loaded
    assert learned >= trips // 4, f"{made} refused most of {zoo}"
    different = differing(encode({"main": model}), encode({"main": twin}))
    assert not different, f"{made}, {zoo}, seed {seed}: not as if never saved: {different}"
    return trips
