"""The whole benchmark in one table: our first forest and the best rival on each stream.

A budget may have cut rivals short at different events. So the best rival has the largest lead over
ours (or the smallest lag) over the events that it has seen itself, and ours is shown over the same events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from streamforest.bench.forest.results import EqualCpu, ForestResult, Row, StreamResult

LEVEL = 0.001
"""Accuracies this close count as level."""

FAST = 5.0
"""Speed as a multiple of the rival's that counts as fast."""


@dataclass(frozen=True)
class Duel:
    """Our forest and the best rival on one stream, over the same events."""

    stream: StreamResult
    ours: Row
    rival: Row

    @property
    def events(self) -> int:
        """Events that both have seen."""
        assert self.ours.runs is not None
        assert self.rival.runs is not None
        return min(self.ours.runs.events, self.rival.runs.events)

    @property
    def accuracies(self) -> tuple[float, float]:
        """(ours, the rival's)."""
        assert self.ours.runs is not None
        assert self.rival.runs is not None
        return self.ours.runs.accuracy(self.events), self.rival.runs.accuracy(self.events)

    @property
    def lead(self) -> float:
        """Our lead in accuracy."""
        ours, rival = self.accuracies
        return ours - rival

    @property
    def verdict(self) -> str:
        """above, level or below."""
        if abs(self.lead) <= LEVEL:
            return "level"
        return "above" if self.lead > 0 else "below"

    @property
    def times_as_fast(self) -> float:
        """The rival's CPU time as a multiple of ours."""
        return self.rival.slower_than(self.ours)

    @property
    def equal_cpu(self) -> EqualCpu | None:
        """Ours in the CPU time of this rival."""
        found = (m for m in self.stream.equal_cpu if m.ours is self.ours and m.rival is self.rival)
        return next(found, None)

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        ours, rival = self.accuracies
        match = self.equal_cpu
        return {
            "stream": self.stream.stream.name,
            "events": self.events,
            "of": len(self.stream.stream),
            "ours": self.ours.spec.name,
            "accuracy": ours,
            "rival": self.rival.spec.name,
            "rival_accuracy": rival,
            "verdict": self.verdict,
            "times_as_fast": self.times_as_fast,
            "equal_cpu_trees": match and match.trees,
            "equal_cpu_accuracy": match and match.runs.accuracy(),
        }


def duels(result: ForestResult) -> list[Duel]:
    """One for each stream on which both sides were measured."""
    found = []
    for stream in result.streams:
        ours = stream.reference
        rivals = [row for row in stream.measured() if row.spec.rival]
        if ours is not None and rivals:
            best = max(rivals, key=lambda rival: rival.lead_over(ours))
            found.append(Duel(stream, ours, best))
    return found


def print_best_rivals(console: Console, result: ForestResult) -> None:
    """The table, and how often ours is ahead."""
    found = duels(result)
    if len(found) < 2:
        return
    table = Table(title=f"{found[0].ours.spec.about}: against the best rival", title_justify="left")
    for title in ("stream", "events", "ours", "best rival", "its", "ours is", "times as fast"):
        left = title in ("stream", "best rival", "ours is")
        table.add_column(title, justify="left" if left else "right")
    table.add_column("at its CPU time", justify="right")
    for duel in found:
        ours, rival = duel.accuracies
        match = duel.equal_cpu
        cut = "*" if duel.events < len(duel.stream.stream) else ""
        table.add_row(
            duel.stream.stream.name,
            f"{duel.events:,}{cut}",
            f"{ours:.4f}",
            duel.rival.spec.about,
            f"{rival:.4f}",
            f"{duel.verdict} ({100 * duel.lead:+.2f})",
            f"{duel.times_as_fast:,.1f}",
            "" if match is None else f"{match.runs.accuracy():.4f} ({match.trees} trees)",
        )
    console.print(table)
    not_below = sum(duel.verdict != "below" for duel in found)
    above = sum(duel.verdict == "above" for duel in found)
    fast = sum(duel.times_as_fast >= FAST for duel in found)
    console.print(
        f"At or above the best rival (within {LEVEL:g}) on {not_below} of {len(found)} streams, above "
        f"on {above}; at least {FAST:g}× its events/s on {fast}.\n"
        "Points in brackets. * the rival was cut short by the budget: both over its events.",
        markup=False,
    )
