"""Tables of the coarse benchmark: ours beside the paper's ratios."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import numpy as np
from rich.console import Console
from rich.table import Table

from streamforest.bench.coarse.methods import COARSE_ONLY, FINE_ONLY, Measured
from streamforest.bench.incremental.report import mean_spread


def print_ratios(
    console: Console,
    name: str,
    measured: Measured,
    paper: Mapping[str, tuple[float, ...]],
    of_categories: Mapping[str, float] | None = None,
) -> None:
    """Accuracy of each method, over fine-only training, beside the paper's ratio."""
    points = list(dict.fromkeys(at for _, at in measured.cells))
    table = Table(title=f"{name}: {measured.title}", title_justify="left")
    table.add_column("method")
    for at in points:
        table.add_column(f"{at}: accuracy", justify="right")
        table.add_column("ratio (paper)", justify="right")
    if of_categories is not None:
        table.add_column("categories: ratio (paper)", justify="right")
    for method in dict.fromkeys(method for method, _ in measured.cells):
        cells = [method]
        for p, at in enumerate(points):
            mine, base = measured.cells[method, at], measured.cells[FINE_ONLY, at]
            if np.isnan(mine.fine).all():
                cells += ["", ""]
                continue
            ratio = f"{fmean(mine.fine) / fmean(base.fine):.2f}"
            said = f" ({paper[method][p]:.2f})" if method in paper else ""
            cells += [mean_spread(mine.fine), ratio + said]
        if of_categories is not None:
            at = points[-1]
            over = fmean(measured.cells[COARSE_ONLY, at].coarse)
            ratio = f"{fmean(measured.cells[method, at].coarse) / over:.2f}"
            said = f" ({of_categories[method]:.2f})" if method in of_categories else ""
            cells.append(ratio + said)
        table.add_row(*cells)
    console.print(table)


def print_cells(
    console: Console,
    name: str,
    measured: Measured,
    heads: tuple[str, str] = ("classes", "categories"),
) -> None:
    """A sweep, or any other measurement, as it is; `heads` are those of its two figures."""
    table = Table(title=f"{name}: {measured.title}", title_justify="left")
    for head in ("", "at", *heads, "comparisons"):
        table.add_column(head, justify="right")
    for cell in measured.cells.values():
        values = [
            "" if np.isnan(column).all() else mean_spread(column, digits)
            for column, digits in ((cell.fine, 3), (cell.coarse, 3), (cell.comparisons, 0))
        ]
        table.add_row(cell.method, cell.at, *values)
    console.print(table)
