"""The curves of a report as PNG files, for slides and papers. Needs matplotlib, which is an extra."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from streamforest.errors import ConfigError
from streamforest.private_files import replace

_GREEN, _GREY, _BLUE = "#15703c", "#767f78", "#2f6fc4"
_MAX_MARKS = 40


def pictures(numbers: dict[str, Any], folder: Path) -> list[Path]:
    """Write `accuracy.png`, `confusion.png` and `calibration.png`; ConfigError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("--png: needs matplotlib: pip install 'streamforest[report]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in (
        ("accuracy", _accuracy),
        ("confusion", _confusion),
        ("calibration", _calibration),
    ):
        figure = Figure(figsize=(8, 4.5) if name == "accuracy" else (6, 5), layout="constrained")
        draw(figure.subplots(), numbers)
        image = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a class name may need a letter that no font has
            figure.savefig(image, format="png", dpi=110)
        path = folder / f"{name}.png"
        replace(path, image.getvalue(), None)
        written.append(path)
    return written


def _accuracy(axes: Any, numbers: dict[str, Any]) -> None:
    curve = numbers["curve"]
    axes.plot(curve["event"], curve["accuracy"], color=_GREEN, label="accuracy")
    axes.plot(curve["event"], curve["no_change"], color=_GREY, ls="--", label="no-change")
    for one in numbers["births"]["listed"][-_MAX_MARKS:]:
        axes.axvline(one["first"], color="#c2881a", lw=0.8, ls=":")
        text = axes.text(one["first"], 1.01, one["name"][:12], fontsize=7, rotation=90, ha="center")
        text.set_parse_math(False)  # a name is text, whatever it looks like
    axes.set(xlabel="event", ylabel="accuracy", ylim=(0, 1))
    axes.legend(loc="lower right")


def _confusion(axes: Any, numbers: dict[str, Any]) -> None:
    confusion = numbers["confusion"]
    matrix = np.array(confusion["matrix"], float).reshape(len(confusion["names"]), -1)
    names = [name[:20] for name in confusion["names"]]
    if names:
        shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        axes.imshow(shares, cmap="Greens", vmin=0, vmax=1)
    axes.set_xticks(
        range(len(names) + bool(names)),
        [*names, "other" if confusion["left_out"] else "none yet"] if names else [],
        rotation=90,
    )
    axes.set_yticks(range(len(names)), names)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
    axes.set(xlabel="predicted", ylabel="label")


def _calibration(axes: Any, numbers: dict[str, Any]) -> None:
    rows = numbers["calibration"]
    axes.plot([0, 1], [0, 1], color=_GREY, ls="--")
    shares = [one["probability"] for one in rows], [one["accuracy"] for one in rows]
    axes.plot(*shares, "o-", color=_BLUE)
    axes.set(xlabel="probability", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
