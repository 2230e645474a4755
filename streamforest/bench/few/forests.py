"""Our forests with their defaults, on letters: old classes first, then a few rows of a new one."""

from __future__ import annotations

from typing import Any

from streamforest.bench.denil.common import Figure, Watcher
from streamforest.bench.few import Options
from streamforest.bench.few.protocol import (
    LETTERS,
    Rates,
    answers_of,
    collect,
    draw,
    gains,
    latin,
    missing_data,
    nearest,
    panels,
    signed,
)

ROWS = (1, 2, 4, 8)
CONSISTENT, BALANCED = "consistent", "consistent, balanced"
STREAM, STREAM_BALANCED = "stream", "stream, balanced"
FEW, ANNOUNCED = "few", "few, announced"
ONLINE, ONLINE_BALANCED = "online", "online, balanced"


def _makers() -> dict[str, Any]:
    import streamforest as sf

    return {
        "ncm": sf.NCMForestClassifier,
        STREAM: sf.StreamForestClassifier,
        STREAM_BALANCED: lambda seed: sf.StreamForestClassifier(balanced=True, seed=seed),
        FEW: sf.FewShotForestClassifier,
        ANNOUNCED: sf.FewShotForestClassifier,
        CONSISTENT: sf.ConsistentForestClassifier,
        BALANCED: lambda seed: sf.ConsistentForestClassifier(balanced=True, seed=seed),
        ONLINE: sf.OnlineForestClassifier,
        ONLINE_BALANCED: lambda seed: sf.OnlineForestClassifier(balanced=True, seed=seed),
    }


def forests(options: Options, watcher: Watcher) -> Figure:
    """Every second letter in turn is the new one."""
    title = "Our forests with their defaults, on letters"
    if skipped := missing_data(LETTERS, "forests", title):
        return skipped
    letters = latin()
    new = range(0, len(letters), 13 if options.quick else 2)
    runs = [(run, k) for run in range(options.runs or 1) for k in new]
    watcher.begin("forests", len(runs) * len(ROWS))
    done = 0

    def one(run: tuple[int, int], rows: int) -> dict[str, Rates]:
        nonlocal done
        seed = options.seed + run[0]
        task = draw(letters, run[1], rows, seed)
        rates = {}
        for name, make in _makers().items():
            model = make(seed=seed)
            model.learn_many(task.X[: task.n_old], task.y[: task.n_old])
            if name == ANNOUNCED:
                model.announce(task.new, nearest(task, 5))
            model.learn_many(task.X[task.n_old :], task.y[task.n_old :])
            rates[name] = task.rates(answers_of(model, task.X_test))
        done += 1
        watcher.update(done)
        return rates

    of_new, of_all = panels("Our forests", ROWS, collect(runs, ROWS, one))
    facts = {
        balanced: {
            "new_class_gain": gains(of_new, balanced, plain),
            "mean_rate_gain": gains(of_all, balanced, plain),
        }
        for balanced, plain in (
            (STREAM_BALANCED, STREAM),
            (BALANCED, CONSISTENT),
            (ONLINE_BALANCED, ONLINE),
            (ANNOUNCED, FEW),
        )
    }
    findings = [
        f"{name}: new class {signed(of_it['new_class_gain'])} points, mean rate "
        f"{signed(of_it['mean_rate_gain'])}, at {', '.join(map(str, ROWS))} rows."
        for name, of_it in facts.items()
    ]
    settings = {"letters": len(new), "rows": list(ROWS), "seed": options.seed}
    return Figure("forests", title, settings, [of_new, of_all], facts, findings)
