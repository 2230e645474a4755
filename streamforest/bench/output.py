"""Tables, JSON files, plots and the progress bar, for all benchmarks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from streamforest.bench import machine
from streamforest.errors import ConfigError

PIPE_WIDTH = 160
"""Width of a table that goes to a file or a pipe, which have no width."""


def table_console() -> Console:
    """Where tables are printed: standard output."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


class Bar:
    """A progress bar on standard error, on a terminal only; use it in a `with` block."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,  # a table may go to a pipe while the bar is on the terminal
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar while something else is printed."""
        self._progress.stop()
        yield
        self._progress.start()

    def begin(self, what: str, total: int) -> None:
        """A step of `total` events starts."""
        self._progress.reset(self._task, total=total, description=what)

    def update(self, done: int) -> None:
        """The number of events of the step that are done."""
        self._progress.update(self._task, completed=done)


def check_output(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written, before hours are spent measuring."""
    if path is None:
        return
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"{option} is {str(path)!r}; give a file in a folder that exists")
    if option == "--plot":
        _check_matplotlib(option)
        if path.suffix.lower() not in PLOT_FORMATS:
            raise ConfigError(
                f"{option} is {str(path)!r}; give a name that ends in {', '.join(PLOT_FORMATS)}"
            )


def check_plot_folder(option: str, folder: Path | None) -> None:
    """The same for a folder of plots, which need not exist yet."""
    if folder is None:
        return
    if not folder.absolute().parent.is_dir():
        raise ConfigError(f"{option} is {str(folder)!r}; give a folder inside one that exists")
    _check_matplotlib(option)


def _check_matplotlib(option: str) -> None:
    if find_spec("matplotlib") is None:
        raise ConfigError(
            f"{option} needs matplotlib, which is not installed; run: pip install matplotlib"
        )


PLOT_FORMATS = (".png", ".svg", ".pdf")


def write_json(path: Path, benchmark: str, content: dict[str, Any]) -> None:
    """Write a benchmark's figures with the versions and the machine they were measured on."""
    document = {
        "benchmark": benchmark,
        "versions": machine.versions(),
        "machine": machine.description(),
        **content,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def versions_line() -> str:
    """Versions and machine, for the foot of a table."""
    found = ", ".join(f"{name} {version}" for name, version in machine.versions().items())
    return f"{found}; {machine.description()}"


@dataclass(frozen=True, eq=False)
class Line:
    """A curve. Lines with the same label have the same colour in every panel of a plot."""

    label: str
    x: NDArray[Any]
    y: NDArray[np.float64]
    spread: NDArray[np.float64] | None = None
    """Half the height of a band around the line."""
    dashed: bool = False
    strong: bool = False
    """What the plot is about."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One set of axes."""

    title: str
    lines: Sequence[Line]
    x_label: str = "events"
    y_label: str = "accuracy"
    log_x: bool = False
    marks: Sequence[float] = ()
    """Where to draw a vertical line."""


def plot(path: Path, panels: Sequence[Panel], columns: int = 2) -> None:
    """Draw the panels into one file, with one legend for all of them."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    palette = colormaps["tab10" if len(labels) <= 10 else "tab20"]
    colour = {label: palette(i % palette.N) for i, label in enumerate(labels)}
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(6.5 * columns, 3.6 * rows + 0.25 * len(labels)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for axes, panel in zip(grid, panels):
        for line in panel.lines:
            style = "--" if line.dashed else "-"
            (handles[line.label],) = axes.plot(
                line.x,
                line.y,
                style,
                color=colour[line.label],
                linewidth=2.4 if line.strong else 1.2,
                zorder=3 if line.strong else 2,
            )
            if line.spread is not None:
                axes.fill_between(
                    line.x,
                    line.y - line.spread,
                    line.y + line.spread,
                    color=colour[line.label],
                    alpha=0.15,
                    linewidth=0,
                )
        for mark in panel.marks:
            axes.axvline(mark, color="grey", linewidth=0.8, linestyle=":")
        axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
        if panel.log_x:
            axes.set_xscale("log")
        axes.grid(alpha=0.3)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.legend(
        handles=[handles[label] for label in labels],
        labels=labels,
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    figure.savefig(path, dpi=130)
