"""The numbers of the page: what a run is now, as plain data. The history is locked by the caller."""

from __future__ import annotations

from typing import Any

from streamforest.observe.evaluation import AGE_LIMITS, WINDOW, kappa_temporal
from streamforest.observe.history import History
from streamforest.observe.page.points import Point, share, short, total
from streamforest.observe.page.status import accuracies

_LATELY = 30.0  # seconds that "now" looks back
_MAX_PAIRS = 8
_MAX_LETTERS = 8
_AGES = [
    f"{low}–{high}" for low, high in zip((1, *(limit + 1 for limit in AGE_LIMITS)), AGE_LIMITS)
] + [f"{AGE_LIMITS[-1] + 1}+"]


def lately(history: History, now: float) -> Point:
    """The last half minute."""
    points = history.kept.minutes.points
    if history.finished and points:
        now = points[-1].at
    return total([point for point in points[-30:] if point.at >= now - _LATELY])


def run_view(history: History, recent: Point) -> dict[str, Any]:
    """All that the page shows, except for the curves."""
    kept, window = history.kept, total(history.window)
    right = accuracies(window)
    plain = share(window.no_change, window.labelled)
    pairs, judged = history.confused(_MAX_PAIRS)
    series = kept.whole.points
    lags = sorted(history.lags.items())
    seconds = [behind for _, (_, behind) in lags if behind is not None]
    return {
        "revision": history.revision,
        "started_at": history.started_at,
        "first_at": series[0].at - series[0].seconds if series else None,
        "finished": history.finished,
        "main": history.main,
        "events": history.events,
        "events_at": history.events_at or None,
        "labelled_at": kept.labelled_at or None,
        "rate": short(recent.events / recent.seconds) if recent.seconds else None,
        "window": {
            "labelled": window.labelled,
            "enough": window.labelled >= WINDOW,
            "accuracy": right.get(history.main),
            "no_change": plain,
            "kappa_temporal": kappa_temporal(right.get(history.main), plain),
        },
        "models": _models(history, right, plain),
        "latency": {
            "predict": _mean(recent.predict),
            "learn": _mean(recent.learn),
            "wait_median": short(recent.wait_median / recent.waits) if recent.waits else None,
            "wait_p99": short(recent.wait_p99) if recent.waits else None,
        },
        "novelty": {
            "median": short(recent.novelty / recent.measured) if recent.measured else None,
            "far": share(recent.far, recent.measured),
        },
        "lag": {
            "known": bool(lags),
            "records": sum(lag for _, (lag, _) in lags),
            "seconds": max(seconds) if seconds else None,
            "partitions": [
                {"topic": topic, "partition": number, "records": lag, "seconds": short(behind)}
                for (topic, number), (lag, behind) in lags[:50]
            ],
        },
        "classes": {
            "known": history.classes.get(history.main, 0),
            "born": kept.classes.total,
            "births": kept.classes.births,
            "ages": _AGES,
            "recent": [
                {
                    "name": one.name,
                    "at": one.at,
                    "learned": one.learned,
                    "events": one.events,
                    "ages": one.ages,
                    "now": share(one.now[1], one.now[0]),
                    "reached": one.reached,
                }
                for one in reversed(kept.classes.followed)
            ],
        },
        "confused": {"pairs": pairs, "events": judged},
        "delivery": {
            "role": history.role,
            "partitions": history.partitions,
            "behind": history.behind,
            "rebalances": kept.rebalances,
            "commits": kept.commits,
            "in_doubt": kept.commits_in_doubt,
            "committed_at": history.committed_at or None,
            "snapshots": kept.snapshots,
            "snapshot_failures": kept.snapshot_failures,
            "snapshot_at": kept.snapshot_at or None,
            "snapshot_bytes": kept.snapshot_bytes,
        },
        "labels": history.labels,
        "dead": {
            "reasons": sorted(kept.reasons.items(), key=lambda row: -row[1]),
            "letters": kept.letters[: -_MAX_LETTERS - 1 : -1],
            "share": share(recent.refused, recent.events),
        },
    }


def _models(
    history: History, recent: dict[str, float], plain: float | None
) -> list[dict[str, Any]]:
    overall = accuracies(history.overall)
    rows = []
    for name in history.learned:
        told = history.summaries.get(name, {})
        rows.append(
            {
                "name": name,
                "accuracy": recent.get(name),
                "overall": overall.get(name),
                "kappa_temporal": kappa_temporal(recent.get(name), plain),
                "learned": history.learned[name],
                "trees": told.get("trees"),
                "bytes": told.get("total_bytes"),
                "replaced": told.get("swaps", told.get("trees_grown")),
                "challengers": told.get("challengers_grown"),
            }
        )
    return rows


def _mean(pair: tuple[int, float]) -> float | None:
    return short(pair[1] / pair[0]) if pair[0] else None
