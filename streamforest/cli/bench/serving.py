"""`streamforest bench serve`: answers over HTTP, ours beside a plain FastAPI server with River."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import click

from streamforest.bench.output import check_output, versions_line, write_json
from streamforest.cli.bench import JSON_FILE
from streamforest.errors import ConfigError

_PARTS = ("fastapi", "uvicorn", "uvloop", "httptools", "msgspec")
"""What the servers are made of, beside what every benchmark names."""


@click.command("serve")
@click.option("--events", type=click.IntRange(100), default=5_000, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(0.5),
    default=5.0,
    show_default=True,
    help="For each measurement.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Of which the median is told.",
)
@JSON_FILE
def serve(events: int, seconds: float, rounds: int, json_file: Path | None) -> None:
    """Saturated rate of `streamforest serve`, and its latency at half of it; beside FastAPI with River.

    Both are also asked at the same rate, half of what the slower one can do.

    \b
    Example:
      streamforest bench serve --events 1000 --seconds 5
    """
    check_output("--json", json_file)
    for name in ("fastapi", "uvicorn"):
        if find_spec(name) is None:
            raise ConfigError(f"bench serve needs {name}: pip install 'streamforest[bench,serve]'")
    from streamforest.bench.serving.measurement import measure, report

    found = measure(events, seconds, rounds, lambda text: click.echo(text, err=True))
    parts = {name: version(name) for name in _PARTS if find_spec(name) is not None}
    named = ", ".join(f"{name} {number}" for name, number in parts.items())
    click.echo(report(found, f"{named}, {versions_line()}"))
    if json_file is not None:
        write_json(json_file, "serve", {"parts": parts, **asdict(found)})
