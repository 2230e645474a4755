"""Experiments 1 and 3 of Rodner and Denzler 2011: handwritten letters, one of them with few rows.

The paper's letters are Fink's (60 drawings each, 96 features). Ours are Omniglot's Latin alphabet: 20
drawings each, 10 of them for training, 196 orientation histograms. Trees, σ², support classes of e and the
protocol are the paper's; the prior p(i), which it does not give, is uniform.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamforest.bench.denil.common import Figure, Watcher
from streamforest.bench.few import Options
from streamforest.bench.few.protocol import (
    BALANCED,
    LETTERS,
    LEVEL,
    MAP,
    PLAIN,
    WAYS,
    Rates,
    Task,
    answers_of,
    collect,
    draw,
    gains,
    grown,
    latin,
    missing_data,
    nearest,
    panels,
    rivals,
    signed,
)
from streamforest.bench.machine import require_scikit_learn

ROWS = (1, 2, 4, 8)
NEW = "e"
SIMILAR, DISSIMILAR = "abcd", "mnwvz"


def _numbers(letters: str) -> list[int]:
    return [ord(letter) - ord("a") for letter in letters]


def _all_ways(task: Task, support: Sequence[int], trees: int, seed: int) -> dict[str, Rates]:
    ours = {
        way: task.rates(answers_of(grown(task, support, way, trees, seed), task.X_test))
        for way in WAYS
    }
    return ours | rivals(task, trees, seed)


def one_letter(options: Options, watcher: Watcher) -> Figure:
    """Experiment 1: e with few rows, from a, b, c and d."""
    title = "Experiment 1: the letter e from a, b, c, d (Fig. 5)"
    if skipped := missing_data(LETTERS, "1", title):
        return skipped
    require_scikit_learn()
    letters, support, new = latin(), _numbers(SIMILAR), _numbers(NEW)[0]
    runs = options.runs or (2 if options.quick else 10)
    watcher.begin("experiment 1", runs * len(ROWS))
    done = 0

    def one(run: int, rows: int) -> dict[str, Rates]:
        nonlocal done
        task = draw(letters, new, rows, options.seed + run)
        rates = _all_ways(task, support, options.trees, options.seed + run)
        done += 1
        watcher.update(done)
        return rates

    return _figure("1", title, collect(range(runs), ROWS, one), options)


def all_letters(options: Options, watcher: Watcher) -> Figure:
    """Every letter in turn is the new one, and the five nearest class means are its support."""
    title = "Each Latin letter from its five nearest"
    if skipped := missing_data(LETTERS, "all", title):
        return skipped
    require_scikit_learn()
    letters = latin()
    new = range(len(letters))[:: 13 if options.quick else 1]
    runs = [(run, k) for run in range(options.runs or 1) for k in new]
    watcher.begin("all letters", len(runs) * len(ROWS))
    done = 0

    def one(run: tuple[int, int], rows: int) -> dict[str, Rates]:
        nonlocal done
        seed = options.seed + run[0]
        task = draw(letters, run[1], rows, seed)
        rates = _all_ways(task, nearest(task, 5), options.trees, seed)
        done += 1
        watcher.update(done)
        return rates

    return _figure("all", title, collect(runs, ROWS, one), options)


def _figure(
    key: str, title: str, measured: dict[str, list[list[Rates]]], options: Options
) -> Figure:
    of_new, of_all = panels(title.partition(" (")[0], ROWS, measured)
    facts = {
        way: {
            "new_class_gain": gains(of_new, way, PLAIN),
            "mean_rate_gain": gains(of_all, way, PLAIN),
        }
        for way in (BALANCED, MAP, LEVEL)
    }
    findings = [
        f"{way} over {PLAIN} at {', '.join(map(str, ROWS))} rows, in points: new class "
        f"{signed(of_it['new_class_gain'])}; mean rate {signed(of_it['mean_rate_gain'])}."
        for way, of_it in facts.items()
    ]
    settings = {"trees": options.trees, "variance": 1e-5, "rows": list(ROWS), "seed": options.seed}
    return Figure(key, title, settings, [of_new, of_all], facts, findings)


def similarity(options: Options, watcher: Watcher) -> Figure:
    """Experiment 3: what support classes are worth that are not like the new one."""
    title = (
        "Experiment 3: similar (a, b, c, d) and dissimilar (m, n, w, v, z) support for e (Fig. 8)"
    )
    if skipped := missing_data(LETTERS, "3", title):
        return skipped
    letters, new = latin(), _numbers(NEW)[0]
    runs = options.runs or (2 if options.quick else 20)
    watcher.begin("experiment 3", runs * len(ROWS))
    done = 0

    def one(run: int, rows: int) -> dict[str, Rates]:
        nonlocal done
        seed = options.seed + run
        task = draw(letters, new, rows, seed)
        made = {PLAIN: grown(task, [], PLAIN, options.trees, seed)}
        for name, support in (("similar", SIMILAR), ("dissimilar", DISSIMILAR)):
            made[f"MAP, {name}"] = grown(task, _numbers(support), MAP, options.trees, seed)
        rates = {way: task.rates(answers_of(model, task.X_test)) for way, model in made.items()}
        done += 1
        watcher.update(done)
        return rates

    measured = collect(range(runs), ROWS, one)
    of_new, of_all = panels("Experiment 3", ROWS, measured)
    at = ROWS.index(4)
    facts = {}
    findings = []
    for name in ("similar", "dissimilar"):
        way = f"MAP, {name}"
        better = np.mean(
            [run[at][1] > plain[at][1] for run, plain in zip(measured[way], measured[PLAIN])]
        )
        facts[name] = {
            "new_class_gain": gains(of_new, way, PLAIN),
            "mean_rate_gain": gains(of_all, way, PLAIN),
            "runs_above_the_diagonal_at_4_rows": round(float(better), 3),
        }
        findings.append(
            f"{name} support, 4 rows: new class {100 * facts[name]['new_class_gain'][at]:+.1f} points, "  # type: ignore[index]
            f"mean rate {100 * facts[name]['mean_rate_gain'][at]:+.1f}, better in {better:.0%} of runs."  # type: ignore[index]
        )
    settings = {"trees": options.trees, "variance": 1e-5, "runs": runs, "seed": options.seed}
    return Figure("3", title, settings, [of_new, of_all], facts, findings)
