"""Tables and plots of the incremental benchmarks: means over the orders, with their spread."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import numpy as np
from rich.console import Console
from rich.table import Table

from streamforest.bench.incremental.protocol import RETRAINED, Course, Found
from streamforest.bench.output import Line, Panel


def mean_spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± spread; the mean alone for a single value.

    >>> mean_spread([0.5]), mean_spread([0.4, 0.6])
    ('0.500', '0.500 ± 0.100')
    """
    text = f"{fmean(values):.{digits}f}"
    return text if len(values) < 2 else f"{text} ± {pstdev(values):.{digits}f}"


def print_set(console: Console, found: Found, label: str = "") -> None:
    """The strategies on one set."""
    s = found.settings
    steps = s.steps(found.classes)
    title = (
        f"{found.set_name}{label}: {found.classes} classes from {steps[0]}, {len(steps) - 1} batches, "
        f"{found.rows:,} rows; {s.trees} trees, µ {s.mu}, π {s.pi}"
    )
    if s.memory < 1:
        title += f", memory {100 * s.memory:.0f} % (the retrained forest has all rows)"
    table = Table(title=title, title_justify="left")
    table.add_column("split")
    table.add_column("strategy")
    heads = ("accuracy", "of retrained", "oldest", "newest", "training time", "test µs/event")
    for head in heads:
        table.add_column(head, justify="right")
    for split in s.splits:
        for name in (RETRAINED, *s.strategies):
            courses = found.of(name, split)
            if courses:
                table.add_row(split, name, *_cells(found, courses, name))
    console.print(table)
    for split in s.splits:
        console.print(_order_line(found, split), markup=False, style="dim", soft_wrap=True)


def _cells(found: Found, courses: list[Course], name: str) -> list[str]:
    last = [course.last for course in courses]
    base = name == RETRAINED
    return [
        mean_spread([point.accuracy for point in last]),
        "1" if base else mean_spread([found.relative(course) for course in courses]),
        mean_spread([point.oldest for point in last]),
        mean_spread([point.newest for point in last]),
        "1" if base else mean_spread([found.time_ratio(course) for course in courses]),
        mean_spread([point.test_us for point in last], 0),
    ]


def _order_line(found: Found, split: str) -> str:
    """The ranking of the strategies by accuracy, for every class order."""
    orders = sorted({course.order for course in found.courses})
    lines = []
    for order in orders:
        here = {
            c.name: c.last.accuracy for c in found.courses if c.order == order and c.split == split
        }
        ranked = sorted((name for name in here if name != RETRAINED), key=here.__getitem__)
        lines.append(f"order {order}: " + " < ".join(f"{name} {here[name]:.3f}" for name in ranked))
    return f"{split}, " + "; ".join(lines)


def panels(found: Found) -> list[Panel]:
    """Accuracy against training time (Fig. 12 of Ristin 2016) and against the classes."""
    by_time, by_classes = [], []
    for split in found.settings.splits:
        for name in (RETRAINED, *found.settings.strategies):
            courses = found.of(name, split)
            if not courses:
                continue
            label = name if split == "ncm" else f"{name}, {split}"
            y = np.array([[p.accuracy for p in course.points] for course in courses])
            x = np.array([[p.train_s for p in course.points] for course in courses]).mean(axis=0)
            if name == RETRAINED:  # the time of training at every batch up to there
                x = np.array(
                    [_retraining_time(found, courses[0], p.classes) for p in courses[0].points]
                )
            strong = name == RETRAINED
            by_time.append(Line(label, np.maximum(x, 1e-3), y.mean(axis=0), strong=strong))
            classes = np.array([p.classes for p in courses[0].points])
            by_classes.append(Line(label, classes, y.mean(axis=0), y.std(axis=0), strong=strong))
    return [
        Panel(found.set_name, by_time, x_label="CPU seconds of training so far", log_x=True),
        Panel(found.set_name, by_classes, x_label="classes known"),
    ]


def _retraining_time(found: Found, course: Course, classes: int) -> float:
    steps = [step for step in found.settings.steps(found.classes)[1:] if step <= classes]
    at = [point.classes for point in course.points]
    return float(np.interp(steps, at, [point.train_s for point in course.points]).sum())
