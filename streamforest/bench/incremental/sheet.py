"""A figure of a paper as a table: printed, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from streamforest.bench.incremental.report import mean_spread


@dataclass
class Sheet:
    """A figure of the paper as a table."""

    key: str
    title: str
    heads: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    """The same for programs."""

    def add(self, **values: Any) -> None:
        """A row: a cell for each value, numbers with their spread where there are several."""
        self.rows.append([_cell(value) for value in values.values()])
        self.values.append(values)

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {"figure": self.key, "title": self.title, "values": self.values}

    def show(self, console: Console) -> None:
        """Print the table."""
        table = Table(title=self.title, title_justify="left")
        for k, head in enumerate(self.heads):
            table.add_column(head, justify="left" if k == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        small = max(value, default=0.0) < 10
        return mean_spread(value, 3 if small else 0)
    return f"{value:.3f}" if isinstance(value, float) else str(value)
