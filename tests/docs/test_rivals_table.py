"""The table of rivals is what was measured, and nothing else."""

from __future__ import annotations

import json

from docs.rivals_table import DATA, PAGE, README, page, readme_table, table


def test_the_tables_are_what_the_script_writes() -> None:
    measured = json.loads(DATA.read_text(encoding="utf-8"))
    for path, written in ((PAGE, table(measured)), (README, readme_table(measured))):
        text = path.read_text(encoding="utf-8")
        assert text == page(text, written), "run: python tests/docs/rivals_table.py"


def test_every_run_names_its_versions() -> None:
    measured = json.loads(DATA.read_text(encoding="utf-8"))
    assert {"python", "numba", "river", "capymoa", "java"} <= measured["versions"].keys()
    assert "resume" not in measured["settings"]
