"""`streamforest bench coarse`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streamforest.cli.bench import JSON_FILE

PARTS = ("methods", "amount", "sweeps", "forests", "unknown")


@click.command()
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME",
    help="Only this data set: omniglot964, clinc150, leaf99, digits. May be repeated.",
)
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(PARTS),
    default=("methods",),
    show_default=True,
    help="What to measure. May be repeated.",
)
@click.option("--trees", default=10, show_default=True, help="Trees of a forest (the paper: 50).")
@click.option(
    "--sets-tried",
    default=50,
    show_default=True,
    help="Sets of class means a node (the paper: 1000).",
)
@click.option(
    "--mu", default=2, show_default=True, help="µ: minimum rows on a side (the paper: 10)."
)
@click.option("--seeds", default=5, show_default=True, help="Cuts of the set that are averaged.")
@JSON_FILE
def coarse(
    sets: tuple[str, ...],
    parts: tuple[str, ...],
    trees: int,
    sets_tried: int,
    mu: int,
    seeds: int,
    json_file: Path | None,
) -> None:
    """What coarse labels are worth, by the protocol of Ristin et al. 2015.

    Half of the training rows have only a category, a further .1, .2 or .5 their class as well. Parts: methods
    (Tables 3 and 5), amount (Table 4), sweeps (Table 1, Figures 2 to 4), forests (the default ncm and stream
    forests on a stream), unknown (unknown classes of known categories). All sets except digits need the
    folder that STREAMFOREST_DATA names; a missing one is skipped.

    \b
    Example:
      streamforest bench coarse --set clinc150 --part methods --seeds 2
    """
    from streamforest.bench import output
    from streamforest.bench.coarse import methods, report, splits, streams

    output.check_output("--json", json_file)
    console = output.table_console()
    settings = methods.Settings(trees=trees, sets=sets_tried, mu=mu, seeds=seeds)
    found: dict[str, Any] = {}
    with output.Bar() as bar:

        def say(text: str) -> None:
            bar.begin(text, 1)

        for name in sets or ("omniglot964", "clinc150"):
            reason = splits.unavailable(name)
            if reason is not None:
                console.print(f"{name} skipped: {reason}", markup=False)
                continue
            of_set = found.setdefault(name, {})
            for part in parts:
                if part == "methods":
                    result = methods.fine_shares(name, settings, say)
                    report.print_ratios(
                        console, name, result, methods.PAPER_FINE, methods.PAPER_CATEGORIES
                    )
                    of_set[part] = result.as_json()
                elif part == "amount":
                    result = methods.coarse_shares(name, settings, say)
                    report.print_ratios(console, name, result, methods.PAPER_COARSE_PART)
                    of_set[part] = result.as_json()
                elif part == "sweeps":
                    several = methods.sweeps(name, settings, say)
                    for result in several:
                        report.print_cells(console, name, result)
                    of_set[part] = [result.as_json() for result in several]
                elif part == "forests":
                    result = streams.forests(name, settings, say, ("ncm", "stream"))
                    report.print_cells(console, name, result)
                    of_set[part] = result.as_json()
                else:
                    result = streams.unknown_classes(name, settings, say)
                    report.print_cells(console, name, result, ("AUROC", "category right"))
                    of_set[part] = result.as_json()
    console.print(output.versions_line(), markup=False, style="dim", soft_wrap=True)
    if json_file is not None:
        content = {"settings": vars(settings), "sets": found}
        output.write_json(json_file, "coarse", content)
