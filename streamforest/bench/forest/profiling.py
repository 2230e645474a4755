"""Where the time of one event goes when one of our forests gets dicts.

The second half of a stream is measured, the first half warms the model up. Measured by itself:

- the whole: `predict_one`, then `learn_one`, for each event;
- turning the dict into a row, once to predict and once to learn;
- the kernel: `advance` in batches of 500, where a call costs next to nothing a row.

What remains of the whole is the price of single calls: two of them into compiled code, labels, and
trees that are no longer in the cache. `advance` of one row is shown beside it for comparison.

The stream forest's kernel is taken apart further, by what is saved when copies of the same grown forest
go through the same events without neighbours, without split tests, and so on. What is saved together
need not be the sum: a forest without split tests also has fewer challengers to grow.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from streamforest import StreamForestClassifier
from streamforest.bench.forest import models
from streamforest.bench.forest.contestant import BATCH
from streamforest.datasets import Stream
from streamforest.errors import ConfigError
from streamforest.kernels.stream.baselines import SILENT
from streamforest.text import nearest


@dataclass(frozen=True)
class Profile:
    """CPU microseconds of one event, by part."""

    stream: str
    model: str
    trees: int
    events: int
    whole_us: float
    dict_us: float
    kernel_us: float
    advance_one_row_us: float
    kernel_parts_us: dict[str, float] = field(default_factory=dict)

    @property
    def calls_us(self) -> float:
        """The time that is neither conversion nor kernel."""
        return self.whole_us - self.dict_us - self.kernel_us

    def as_json(self) -> dict[str, Any]:
        """All parts."""
        return asdict(self) | {"calls_us": self.calls_us}

    def table(self) -> Table:
        """The parts and their shares."""
        table = Table(
            title=f"{self.model}, {self.trees} trees, on {self.stream}: one event by dicts",
            title_justify="left",
            caption=f"advance of an array of one row: {self.advance_one_row_us:.2f} µs",
            caption_justify="left",
        )
        table.add_column("part")
        table.add_column("CPU µs", justify="right")
        table.add_column("share", justify="right")
        for part, value in (
            ("dict to row, twice", self.dict_us),
            ("two calls into compiled code", self.calls_us),
            ("kernel: descend, vote, learn", self.kernel_us),
            *((f"  of it {part}", value) for part, value in self.kernel_parts_us.items()),
            ("whole: predict_one, then learn_one", self.whole_us),
        ):
            table.add_row(part, f"{value:.2f}", f"{value / self.whole_us:.0%}")
        return table


def profile(stream: Stream, name: str, trees: int, seed: int = 0) -> Profile:
    """Measure the parts for one of our models."""
    forest = models.get_spec(name).forest
    if forest is None:
        known = [other for other in models.names() if models.get_spec(other).ours]
        raise ConfigError(f"model {name!r} is not ours; {nearest(name, list(known))}")
    if len(stream) < 2:
        raise ConfigError(f"stream {stream.name!r} has {len(stream)} event; --breakdown needs 2")
    half = len(stream) // 2
    X, y = stream.X, stream.y.tolist()
    dicts = [x for x, _ in stream.dicts()]

    def fresh() -> Any:
        return models.our_forest(forest, trees, seed)

    def one_by_one(model: Any, start: int, end: int) -> None:
        for x, label in zip(dicts[start:end], y[start:end]):
            model.predict_one(x)
            model.learn_one(x, label)

    def dicts_to_rows(model: Any, start: int, end: int) -> None:
        for x in dicts[start:end]:
            model._one_row(x, learn=False)
            model._one_row(x, learn=True)

    def batches(model: Any, start: int, end: int, size: int = BATCH) -> None:
        for i in range(start, end, size):
            stop = min(i + size, end)
            model.advance(X[i:stop], y[i:stop])

    def single_rows(model: Any, start: int, end: int) -> None:
        batches(model, start, end, size=1)

    def cost(road: Callable[[Any, int, int], None], model: Any) -> float:
        begun = time.process_time_ns()
        road(model, half, len(stream))
        return (time.process_time_ns() - begun) / 1e3 / (len(stream) - half)

    by_dicts, by_rows, by_batches = fresh(), fresh(), fresh()
    one_by_one(by_dicts, 0, half)
    for model in (by_rows, by_batches):
        batches(model, 0, half)
    single_rows(fresh(), 0, 1)  # loads what only this road needs
    parts = _kernel_parts(by_batches, lambda model: cost(batches, model))
    return Profile(
        stream=stream.name,
        model=name,
        trees=trees,
        events=len(stream) - half,
        whole_us=cost(one_by_one, by_dicts),
        dict_us=cost(dicts_to_rows, by_dicts),
        kernel_us=cost(batches, by_batches),
        advance_one_row_us=cost(single_rows, by_rows),
        kernel_parts_us=parts,
    )


_WITHOUT: dict[str, dict[str, Any]] = {
    "split tests": {"test_growth": 1e9, "drift": 0},
    "neighbours": {"neighbours": 0, "drift": 0},
    "challengers": {"drift": 0},
}


def _kernel_parts(grown: Any, cost: Callable[[Any], float], repeats: int = 3) -> dict[str, float]:
    """The time that the stream forest saves without a part; empty for other forests.

    Copies of one grown forest take turns, and the cheapest of their rounds counts.
    """
    if not isinstance(grown, StreamForestClassifier):
        return {}
    least: dict[str, float] = {}
    for _ in range(repeats):
        for part in ("", *_WITHOUT, "baselines"):
            model = copy.deepcopy(grown)
            for name, value in _WITHOUT.get(part, {}).items():
                model._params[name] = value
            if "drift" in _WITHOUT.get(part, {}):
                model._trees.voter["racing"] = 0
            if part == "baselines":
                model._baselines.arrays.size[SILENT] = 1
            least[part] = min(cost(model), least.get(part, math.inf))
    whole = least.pop("")
    saved = {part: whole - rest for part, rest in least.items()}
    for part in ("split tests", "neighbours"):  # a forest that errs more would be challenged more
        saved[part] -= saved["challengers"]
    return saved
