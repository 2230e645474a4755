"""`bench forest`: our forests against the rivals, on the same streams in the same order.

Two comparisons on every stream:

1. equal number of trees: every model with `trees` trees, repeats interleaved (round robin over the
   models, so that a slow minute of the machine hits all of them), medians shown;
2. equal CPU time: our forests get as many trees as fit into the CPU time that the best rival (or
   each) took, and the accuracies stand side by side, over the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streamforest import datasets
from streamforest.bench.forest import models
from streamforest.bench.forest.contestant import ModelSpec
from streamforest.bench.forest.measurement import Measurement
from streamforest.bench.forest.model_process import ModelAbsent, ModelFailed, Request
from streamforest.bench.forest.results import EqualCpu, ForestResult, Row, Runs, StreamResult
from streamforest.bench.forest.run_cache import CachedRunner, RunCache
from streamforest.datasets import Stream
from streamforest.errors import ConfigError, DatasetError

EQUAL_CPU = ("best", "each", "off")

SHORT = 2_000
"""Events below which a stream is short."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Parameters
    ----------
    streams, models
        Names; empty for all.
    held_out, scheduled
        All streams means those that settings were never chosen on, or those whose classes come one
        after the other.
    trees
        Trees of every forest in the first comparison.
    our_trees
        Trees of our own forests there; None for as many.
    events
        Only the first so many events of each stream; None for all.
    budget
        CPU seconds after which a run is cut short. The first run of a model on a stream finds out
        how far it comes; its other runs then go equally far.
    repeats
        Timed runs for each seed.
    seeds
        Accuracy is the mean over these seeds.
    short_seeds
        The same for streams of fewer than 2,000 events, where one run says little; empty for `seeds`.
    equal_cpu
        `"best"`: match our forests with the most accurate rival; `"each"`: with every rival;
        `"off"`.
    max_trees
        Our forests get no more trees than this in the second comparison.
    resume
        Folder in which every run is kept, and from which those of an earlier benchmark are taken.
    """

    streams: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    held_out: bool = False
    scheduled: bool = False
    trees: int = 10
    our_trees: int | None = None
    events: int | None = None
    budget: float | None = None
    repeats: int = 3
    seeds: tuple[int, ...] = (0,)
    short_seeds: tuple[int, ...] = ()
    equal_cpu: str = "best"
    max_trees: int = 500
    resume: Path | None = None

    def __post_init__(self) -> None:
        for name in self.streams:
            datasets.get_spec(name)
        for name in self.models:
            models.get_spec(name)
        for field, value in (
            ("trees", self.trees),
            ("our-trees", self.our_trees),
            ("events", self.events),
            ("repeats", self.repeats),
            ("max-trees", self.max_trees),
            ("seeds", len(self.seeds)),
        ):
            if value is not None and value < 1:
                raise ConfigError(f"{field} is {value}; give at least 1")
        if self.budget is not None and not self.budget > 0:
            raise ConfigError(f"budget is {self.budget}; give a number of seconds above 0")
        if self.equal_cpu not in EQUAL_CPU:
            raise ConfigError(
                f"equal-cpu is {self.equal_cpu!r}; choose from: {', '.join(EQUAL_CPU)}"
            )

    def trees_of(self, spec: ModelSpec) -> int:
        """Trees of a model in the first comparison."""
        return self.our_trees if spec.ours and self.our_trees is not None else self.trees

    def seeds_of(self, stream: Stream) -> tuple[int, ...]:
        """Seeds of the runs on a stream."""
        return self.short_seeds if self.short_seeds and len(stream) < SHORT else self.seeds


class Watcher(Protocol):
    """Receives the progress of the benchmark."""

    def begin(self, what: str, total: int) -> None:
        """A step of `total` events starts."""

    def update(self, done: int) -> None:
        """The number of its events that are done."""


def run(
    settings: Settings,
    watcher: Watcher,
    on_stream: Callable[[ForestResult], None] = lambda result: None,
) -> ForestResult:
    """Both comparisons on every stream that is available on this machine.

    `on_stream` is called after each stream with all results so far: a long benchmark that is
    interrupted has then shown and stored what it found.
    """
    result = ForestResult(settings=settings)
    specs = [models.get_spec(name) for name in settings.models or models.names()]
    for name in settings.streams or datasets.names(settings.held_out, settings.scheduled):
        if reason := datasets.unavailable(name):
            result.skipped[name] = reason
            continue
        watcher.begin(f"{name}: loading", 1)
        stream = datasets.load(name, settings.events)
        result.streams.append(_run_stream(stream, specs, settings, watcher))
        on_stream(result)
    if not result.streams:
        raise DatasetError("no stream could be run: " + "; ".join(result.skipped.values()))
    return result


def _run_stream(
    stream: Stream, specs: list[ModelSpec], settings: Settings, watcher: Watcher
) -> StreamResult:
    result = StreamResult(stream)
    cells = RunCache(settings.resume)
    with ExitStack() as stack:
        runners: dict[str, CachedRunner] = {}
        for spec in specs:
            trees = settings.trees_of(spec)
            result.rows[spec.name] = Row(spec, trees if spec.has_trees else None)
            runners[spec.name] = stack.enter_context(CachedRunner(spec, stream, trees, cells))
        _equal_trees(result, runners, settings, watcher)
        _equal_cpu(result, runners, settings, watcher)
        result.kept = sum(runner.kept for runner in runners.values())
    return result


def _equal_trees(
    result: StreamResult, runners: dict[str, CachedRunner], settings: Settings, watcher: Watcher
) -> None:
    """The first comparison, round robin over the models."""
    for seed, repeat, what in _rounds(settings, settings.seeds_of(result.stream)):
        for name, runner in runners.items():
            row = result.rows[name]
            if row.failed or row.absent:
                continue
            first = row.runs is None
            request = Request(
                trees=settings.trees_of(row.spec),
                seed=seed,
                events=len(result.stream) if row.runs is None else row.runs.events,
                budget=settings.budget if first else None,
            )
            watcher.begin(f"{result.stream.name}: {name} {what}", request.events)
            try:
                measurement = runner.run(request, watcher.update, repeat)
            except ModelAbsent as absent:
                row.absent = str(absent)
                continue
            except ModelFailed as failure:
                row.failed = str(failure)
                continue
            row.runs = row.runs or Runs(truncated=measurement.truncated)
            row.runs.add(seed, measurement)


def _rounds(settings: Settings, seeds: tuple[int, ...]) -> Iterator[tuple[int, int, str]]:
    """(seed, repeat, what the progress bar says) of each round."""
    total = len(seeds) * settings.repeats
    for number in range(total):
        seed, repeat = divmod(number, settings.repeats)
        yield seeds[seed], repeat, f"({number + 1} of {total})"


def _equal_cpu(
    result: StreamResult, runners: dict[str, CachedRunner], settings: Settings, watcher: Watcher
) -> None:
    """The second comparison, in the processes of the first."""
    if settings.equal_cpu == "off":
        return
    rivals = [row for row in result.measured() if row.spec.rival]
    ours = [row for row in result.measured() if row.spec.ours and row.spec.batches_of is None]
    if settings.equal_cpu == "best" and len(rivals) > 1 and ours:
        # Rivals may have come differently far: each is judged against ours over its own events.
        rivals = [max(rivals, key=lambda rival: rival.lead_over(ours[0]))]
    for rival in rivals:
        for row in ours:
            try:
                match = _match(
                    row,
                    rival,
                    runners[row.spec.name],
                    settings,
                    settings.seeds_of(result.stream),
                    watcher,
                )
            except ModelFailed as failure:
                result.equal_cpu_failed.append(f"at equal CPU time, {failure}")
                continue
            result.equal_cpu.append(match)


def _match(
    row: Row,
    rival: Row,
    runner: CachedRunner,
    settings: Settings,
    seeds: tuple[int, ...],
    watcher: Watcher,
) -> EqualCpu:
    """Give our forest the rival's CPU time, over the events that both have seen."""
    assert row.runs is not None
    assert rival.runs is not None
    events = min(row.runs.events, rival.runs.events)

    def run(trees: int, seed: int) -> Measurement:
        watcher.begin(f"equal CPU as {rival.spec.name}: {row.spec.name} × {trees}", events)
        return runner.run(Request(trees, seed, events), watcher.update)

    tried = fit_trees(
        lambda trees: run(trees, seeds[0]),
        start=settings.trees_of(row.spec),
        start_cost=row.runs.cpu_us(events),
        target=rival.runs.cpu_us(events),
        ceiling=settings.max_trees,
    )
    runs = Runs()
    runs.add(seeds[0], tried.measurement)
    for seed in seeds[1:]:
        runs.add(seed, run(tried.trees, seed))
    return EqualCpu(
        rival=rival,
        ours=row,
        trees=tried.trees,
        runs=runs,
        capped=tried.trees == settings.max_trees,
    )


@dataclass(frozen=True)
class Fit:
    """A number of trees and its measured run."""

    trees: int
    measurement: Measurement


def fit_trees(
    run: Callable[[int], Measurement],
    start: int,
    start_cost: float,
    target: float,
    ceiling: int,
    tries: int = 4,
    tolerance: float = 1.05,
) -> Fit:
    """The largest number of trees whose run takes at most `target` CPU time per event.

    Time grows nearly as a straight line with the trees: a part for each event and a part for each
    tree. The first guess knows one point and leaves the former out, so it errs on the cheap side;
    later ones follow the line through the two points nearest to the target. Where not even one tree
    is cheap enough, the cheapest run is returned.
    """
    costs = {start: start_cost}
    fits: list[Fit] = []
    for _ in range(tries):
        trees = max(1, min(ceiling, int(_next_guess(costs, target))))
        if any(fit.trees == trees for fit in fits):
            break
        fits.append(Fit(trees, run(trees)))
        costs[trees] = fits[-1].measurement.cpu_us()
        if target / tolerance <= costs[trees] <= target * tolerance:
            break
    within = [fit for fit in fits if fit.measurement.cpu_us() <= target * tolerance]
    if within:
        return max(within, key=lambda fit: fit.trees)
    return min(fits, key=lambda fit: fit.measurement.cpu_us())


def _next_guess(costs: dict[int, float], target: float) -> float:
    """The number of trees at which a line through the measured points meets the target."""
    nearest = sorted(costs, key=lambda trees: abs(costs[trees] - target))
    near = nearest[0]
    if len(nearest) > 1:
        far = nearest[1]
        slope = (costs[near] - costs[far]) / (near - far)
        if slope > 0:
            return near + (target - costs[near]) / slope
    return near * target / costs[near]
