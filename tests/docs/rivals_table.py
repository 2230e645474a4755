"""Writes the tables of the auto forest and its rivals in the README and `docs/benchmarks.md`.

    python tests/docs/rivals_table.py [FILE]

FILE is what `streamforest bench forest --json FILE` wrote; it is kept, without its curves, as
`docs/rivals.json`, with the versions of everything. `test_rivals_table.py` holds the page equal to it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[2]
DATA = TOP / "docs" / "rivals.json"
PAGE = TOP / "docs" / "benchmarks.md"
README = TOP / "README.md"
BEGIN, END = "<!-- written by tests/docs/rivals_table.py -->\n", "<!-- end -->\n"
_BASELINES = ("no-change", "majority")
_OURS = ("auto", "stream", "ncm")
_IN_README = {
    "digits": "digits ×3",
    "letter": "letter",
    "electricity": "electricity",
    "covtype": "covtype",
    "agrawal": "Agrawal with drift",
    "moving-squares": "moving squares",
    "rotating-board": "rotating board",
}


def kept(measured: dict[str, Any]) -> dict[str, Any]:
    """What is worth keeping: no curves, and no folder of the machine that measured."""
    settings = {name: value for name, value in measured["settings"].items() if name != "resume"}
    streams = []
    for stream in measured["streams"]:
        rows = [{k: v for k, v in row.items() if k != "curve"} for row in stream["rows"]]
        streams.append({**stream, "rows": rows})
    return {**measured, "settings": settings, "streams": streams}


def _cell(row: dict[str, Any] | None) -> str:
    if row is None or row["status"] != "measured":
        return "–"
    return f"{row['accuracy']:.3f}".removeprefix("0") + ("*" if row["truncated"] else "")


def _rivals(rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Best first; a run that was cut comes after those that ended."""
    found = [
        row
        for name, row in rows.items()
        if name not in (*_BASELINES, *_OURS) and row["status"] == "measured"
    ]
    return sorted(found, key=lambda row: (row["truncated"], -row["accuracy"]))


def readme_table(measured: dict[str, Any]) -> str:
    """The short table: both forests, the best rival, and their speed as multiples of its speed."""
    lines = [
        "| stream | auto forest | stream forest | best rival | | speed: auto | stream |\n",
        "|---|---|---|---|---|---|---|\n",
    ]
    streams = {stream["stream"]: stream for stream in measured["streams"]}
    for name, title in _IN_README.items():
        rows = {row["model"]: row for row in streams[name]["rows"]}
        best = _rivals(rows)[0]
        cells = [title]
        for ours in ("auto", "stream"):
            above = rows[ours]["accuracy"] > best["accuracy"]
            cells.append(f"**{_cell(rows[ours])}**" if above else _cell(rows[ours]))
        cells += [_cell(best), best["about"]]
        for ours in ("auto", "stream"):
            times = rows[ours]["events_per_second"] / best["events_per_second"]
            cells.append(f"{times:.1f} ×")
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def table(measured: dict[str, Any]) -> str:
    """The table: a stream in a row, best rival first."""
    head = (
        "| stream | auto | kappa | kappa-t | stream forest | best rival | | auto's times its speed | second "
        "| | no change |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
    )
    lines = []
    for stream in measured["streams"]:
        rows = {row["model"]: row for row in stream["rows"]}
        best, second = _rivals(rows)[:2]
        auto = rows["auto"]
        times = auto["events_per_second"] / best["events_per_second"]
        cells = [
            stream["stream"],
            f"**{_cell(auto)}**" if auto["accuracy"] > best["accuracy"] else _cell(auto),
            f"{auto['kappa']:.3f}",
            f"{auto['kappa_temporal']:.3f}",
            _cell(rows.get("stream")),
            _cell(best),
            best["about"],
            f"{times:.1f}",
            _cell(second),
            second["about"],
            _cell(rows.get("no-change")),
        ]
        lines.append(f"| {' | '.join(cells)} |\n")
    versions = ", ".join(f"{name} {value}" for name, value in measured["versions"].items())
    return f"{head}{''.join(lines)}\nMeasured with {versions}; {measured['machine']}.\n"


def page(text: str, written: str) -> str:
    """A page with this table between its marks."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + written + END + rest.partition(END)[2]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        found = kept(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
        DATA.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    found = json.loads(DATA.read_text(encoding="utf-8"))
    for path, written in ((PAGE, table(found)), (README, readme_table(found))):
        path.write_text(page(path.read_text(encoding="utf-8"), written), encoding="utf-8")
