"""`streamforest bench serve`: answers over HTTP, ours beside a plain FastAPI server with River."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import click

from streamforest.bench.output import check_output, write_json
from streamforest.cli.bench import JSON_FILE
from streamforest.errors import ConfigError


@click.command("serve")
@click.option("--events", type=click.IntRange(100), default=5_000, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(0.5),
    default=10.0,
    show_default=True,
    help="For each measurement.",
)
@JSON_FILE
def serve(events: int, seconds: float, json_file: Path | None) -> None:
    """Saturated rate of `streamforest serve`, and its latency at half of it; beside FastAPI with River.

    \b
    Example:
      streamforest bench serve --events 1000 --seconds 5
    """
    check_output("--json", json_file)
    for name in ("fastapi", "uvicorn"):
        if find_spec(name) is None:
            raise ConfigError(f"bench serve needs {name}: pip install 'streamforest[bench,serve]'")
    from streamforest.bench.serving.measurement import measure, report

    found = measure(events, seconds, lambda text: click.echo(text, err=True))
    click.echo(report(found))
    if json_file is not None:
        write_json(json_file, "serve", {"servers": [asdict(one) for one in found]})
