"""Tables and plots of the figures: mean and one standard deviation over the runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from streamforest.bench import output
from streamforest.bench.denil.common import Curve, Figure, Panel, Picture
from streamforest.errors import ConfigError


def value_text(value: float, unit: str) -> str:
    """A value as tables print it.

    >>> value_text(0.66931, "share"), value_text(2_345_678, "bytes"), value_text(900, "bytes")
    ('.669', '2.3 MB', '900 B')
    """
    if unit == "share":
        return f"{value:.3f}".removeprefix("0")
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:.1f} {name}"
    return f"{value:.0f} B"


def cell(curve: Curve, point: int, unit: str) -> str:
    """Mean ± spread at one point; the mean alone for a single run."""
    mean = value_text(curve.mean[point], unit)
    if len(curve.runs) < 2:
        return mean
    return f"{mean} ± {value_text(curve.spread[point], unit)}"


def panel_table(panel: Panel) -> Table:
    """A row for each x, a column for each curve and level."""
    table = Table(title=f"{panel.title}: {panel.y_label}", title_justify="left")
    table.add_column(panel.x_label, justify="right")
    for name in (*(curve.name for curve in panel.curves), *panel.levels):
        table.add_column(name, justify="right")
    for point, x in enumerate(panel.curves[0].x):
        values = [cell(curve, point, panel.unit) for curve in panel.curves]
        values += [value_text(level, panel.unit) for level in panel.levels.values()]
        table.add_row(f"{x:,.0f}", *values)
    return table


def end_table(panels: list[Panel]) -> Table:
    """Panels over the same curves: a row for each curve, a column for each panel's last value."""
    first = panels[0]
    table = Table(
        title=f"{first.title} after {first.curves[0].x[-1]:,.0f} {first.x_label}",
        title_justify="left",
    )
    table.add_column("")
    for panel in panels:
        table.add_column(panel.y_label, justify="right")
    for k, curve in enumerate(first.curves):
        table.add_row(curve.name, *(cell(panel.curves[k], -1, panel.unit) for panel in panels))
    return table


def print_figure(console: Console, figure: Figure) -> None:
    """Everything about one figure, for a reader at a terminal."""
    console.print(figure.title, style="bold")
    if figure.skipped is not None:
        console.print(f"skipped: {figure.skipped}\n", style="yellow", markup=False, soft_wrap=True)
        return
    by_title: dict[str, list[Panel]] = {}
    for panel in figure.panels:
        by_title.setdefault(panel.title, []).append(panel)
    for panels in by_title.values():
        console.print(panel_table(panels[0]) if len(panels) == 1 else end_table(panels))
    for line in figure.findings:
        console.print(line, markup=False, soft_wrap=True)
    runs = len(figure.panels[0].curves[0].runs)
    over = f"{runs} runs, mean ± one standard deviation" if runs > 1 else "1 run, hence no spread"
    console.print(f"{over}; {figure.seconds:.0f} s\n", style="dim", markup=False)


def check_plot_target(target: Path | None) -> None:
    """Refuse an unusable target for plots before anything is measured."""
    if target is None:
        return
    if target.suffix:
        output.check_output("--plot", target)
        return
    if target.exists() and not target.is_dir():
        raise ConfigError(
            f"--plot is {str(target)!r}, a file; give a folder or the name of a picture"
        )
    output.check_output("--plot", target.absolute().parent / "denil.png")


def picture_paths(target: Path, figures: list[Figure]) -> dict[str, Path]:
    """Where each picture goes, by key: one for each measured figure, "4" for the drawn pose.

    A name with a suffix is that of the picture where there is one figure, and begins the names
    where there are several; a name without one is a folder.

    >>> figures = [Figure("2", ""), Figure("fringe", "")]
    >>> [path.as_posix() for path in picture_paths(Path("out.png"), figures).values()]
    ['out-2.png', 'out-fringe.png']
    >>> [path.as_posix() for path in picture_paths(Path("plots"), figures).values()]
    ['plots/denil-2.png', 'plots/denil-fringe.png']
    """
    measured = [figure for figure in figures if figure.skipped is None]
    keys = [figure.key for figure in measured]
    keys += ["4" for figure in measured if figure.picture is not None]
    if not target.suffix:
        return {key: target / f"denil-{key}.png" for key in keys}
    paths = {key: target.with_stem(f"{target.stem}-{key}") for key in keys}
    if len(measured) == 1:
        paths[measured[0].key] = target
    return paths


def save_plots(target: Path, figures: list[Figure]) -> list[Path]:
    """Draw every measured figure and return the files written."""
    paths = picture_paths(target, figures)
    if not target.suffix:
        target.mkdir(exist_ok=True)
    for figure in figures:
        if figure.skipped is not None:
            continue
        panels = [drawn(panel) for panel in figure.panels]
        output.plot(paths[figure.key], panels, columns=3)
        if figure.picture is not None:
            _save_picture(paths["4"], figure.picture)
    return list(paths.values())


def drawn(panel: Panel) -> output.Panel:
    """The panel as `output.plot` takes it; bytes become megabytes."""
    factor = 1e-6 if panel.unit == "bytes" else 1.0
    lines = [
        output.Line(
            curve.name,
            np.array(curve.x),
            factor * np.array(curve.mean),
            spread=factor * np.array(curve.spread) if len(curve.runs) > 1 else None,
        )
        for curve in panel.curves
    ]
    ends = np.array([panel.curves[0].x[0], panel.curves[0].x[-1]])
    lines += [
        output.Line(
            f"{name} ({value_text(level, panel.unit)})", ends, np.full(2, level), dashed=True
        )
        for name, level in panel.levels.items()
    ]
    y_label = panel.y_label.replace("bytes", "MB") if panel.unit == "bytes" else panel.y_label
    return output.Panel(panel.title, lines, panel.x_label, y_label, log_x=True)


def _save_picture(path: Path, picture: Picture) -> None:
    """Fig. 4: images side by side; the parts have the same colours in each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure as Canvas
    from matplotlib.patches import Patch

    from streamforest.datasets.depth import PARTS

    colours = part_colours(len(PARTS))
    height, width = picture.images[0].shape
    n = len(picture.images)
    canvas = Canvas(figsize=(2.6 * n + 1.6, 2.6 * height / width + 0.5), layout="constrained")
    FigureCanvasAgg(canvas)
    for axes, title, image in zip(
        canvas.subplots(1, n), picture.titles, picture.images, strict=True
    ):
        if image.dtype.kind == "f":
            axes.imshow(image, cmap="bone_r")
        else:
            axes.imshow(
                image,
                cmap=ListedColormap(colours),
                vmin=-0.5,
                vmax=len(PARTS) - 0.5,
                interpolation="nearest",
            )
        axes.set_title(title, fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
    patches = [Patch(color=colour, label=name) for colour, name in zip(colours, PARTS)]
    canvas.legend(
        handles=patches[1:],
        labels=PARTS[1:],
        loc="outside right center",
        frameon=False,
        fontsize=7,
    )
    canvas.savefig(path, dpi=130)


def part_colours(n: int) -> list[str]:
    """White for the background, then hues far apart, since neighbours in the list often touch."""
    from colorsys import hsv_to_rgb

    from matplotlib.colors import to_hex

    hues = [(k * 0.618034) % 1.0 for k in range(n - 1)]  # the golden ratio never comes near itself
    colours = ["#ffffff"]
    for k, hue in enumerate(hues):
        colours.append(to_hex(hsv_to_rgb(hue, 0.85 if k % 2 else 0.55, 0.95 if k % 3 else 0.75)))
    return colours
