"""Species of which little is told: genera first and species later, and a species announced by two sightings.

    python pipelines/species.py

Sightings of 36 species of 6 genera, generated. Whoever sends one names the genus, one in 24 the species too.
Experts name half of the others, 100 sightings later. The sightings go to `species.jsonl`, for `species.toml`.
What each kind of help is worth is printed, and drawn to `species.png` if matplotlib is there
(`pip install "streamforest[report]"`).
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamforest import FewShotForestClassifier, StreamForestClassifier

GENERA, SPECIES, MEASURES = 6, 6, 10
SIGHTINGS, TOLD, EXPERT_AFTER, WINDOW = 1_800, 24, 100, 400
ROWS, SUPPORT = (1, 2, 4), ((0, 1), (0, 4))
FILE, PICTURE = Path("species.jsonl"), Path("species.png")
WAYS = ("species only", "and genera", "and species later")


class Sighting(NamedTuple):
    """What was measured, what it is, and who says so."""

    x: dict[str, float]
    species: str
    genus: str
    told: bool  # whether the species comes with it
    expert: bool  # whether an expert names it later


class World:
    """Species lie around their genus, and some genera overlap."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        genera = self._rng.normal(size=(GENERA, 1, MEASURES))
        species = self._rng.normal(size=(GENERA, SPECIES, MEASURES))
        self._centres = 1.3 * (genera + species)

    def between(self, parts: dict[tuple[int, int], float]) -> Any:
        """A centre that has something of others."""
        return sum(share * self._centres[at] for at, share in parts.items())

    def see(self, centre: Any) -> dict[str, float]:
        """One animal near a centre."""
        values = centre + self._rng.normal(size=MEASURES)
        return {f"m{j}": round(float(v), 3) for j, v in enumerate(values)}

    def sighting(self) -> Sighting:
        """Any species of any genus."""
        g, s = (int(self._rng.integers(n)) for n in (GENERA, SPECIES))
        told = int(self._rng.integers(TOLD)) == 0
        expert = not told and bool(self._rng.integers(2))
        genus = f"genus {g}"
        return Sighting(self.see(self._centres[g, s]), f"{genus} species {s}", genus, told, expert)


def hits_by(way: str, sightings: list[Sighting]) -> list[bool]:
    """Whether the species was predicted, sighting by sighting, each before anything of it was learned."""
    model = StreamForestClassifier(n_trees=15, seed=1)
    with_genera, later = way != WAYS[0], way == WAYS[2]
    numbers: list[int] = []  # of each sighting among those that the forest has learned
    hits = []
    for i, (x, species, genus, told, _) in enumerate(sightings):
        if later and i >= EXPERT_AFTER and sightings[i - EXPERT_AFTER].expert:
            model.refine_one(numbers[i - EXPERT_AFTER], sightings[i - EXPERT_AFTER].species)
        hits.append(model.predict_one(x) == species)
        numbers.append(model.n_learned)
        if told:
            model.learn_one(x, species, coarse=genus if with_genera else None)
        elif with_genera:
            model.learn_one(x, coarse=genus)
    return hits


def found_of_newcomer(seed: int) -> list[list[float]]:
    """Recall of a species after its first sightings: as it comes, and announced with two that it is like."""
    world = World(seed)
    old = [world.sighting() for _ in range(600)]
    centre = world.between({at: 1 / len(SUPPORT) for at in SUPPORT})
    seen, asked = ([world.see(centre) for _ in range(n)] for n in (max(ROWS), 60))
    before = FewShotForestClassifier(n_trees=15, n_support=0, seed=seed)
    for sighting in old:
        before.learn_one(sighting.x, sighting.species)
    recall = []
    for announced in (False, True):
        model = copy.deepcopy(before)
        if announced:
            model.announce("newcomer", support=[f"genus {g} species {s}" for g, s in SUPPORT])
        recall.append([])
        for n, x in enumerate(seen, start=1):
            model.learn_one(x, "newcomer")
            if n in ROWS:
                hits = [model.predict_one(other) == "newcomer" for other in asked]
                recall[-1].append(float(np.mean(hits)))
    return recall


def draw(hits: dict[str, list[bool]], recall: Any) -> str:
    """Both gains in one picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no picture: matplotlib is missing"
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for way, found in hits.items():
        windows = np.convolve(found, np.full(WINDOW, 100 / WINDOW), "valid")
        left.plot(np.arange(WINDOW, len(found) + 1), windows, label=way)
    left.set(
        xlabel="sightings", ylabel=f"species right in the last {WINDOW}, %", title="Genera first"
    )
    for k, name in enumerate(("as it comes", "announced")):
        right.plot(ROWS, 100 * recall[k], marker="o", label=name)
    right.set(
        xticks=ROWS,
        xlabel="sightings of the new species",
        ylabel="found, %",
        title="A species announced",
    )
    for axes in (left, right):
        axes.set_ylim(0, 100)
        axes.legend(frameon=False)
    figure.savefig(PICTURE, dpi=120)
    return f"drawn to {PICTURE}"


def main() -> None:
    """Write the sightings, and say what genera, later species and an announcement are worth."""
    world = World(seed=7)
    sightings = [world.sighting() for _ in range(SIGHTINGS)]
    events = [
        {"x": s.x, "coarse": s.genus, **({"y": s.species} if s.told else {})} for s in sightings
    ]
    FILE.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")

    recall = np.mean([found_of_newcomer(seed) for seed in range(5)], axis=0)
    print("found of a new species, as it comes and announced with two that it is like:")
    for n, plain, with_support in zip(ROWS, *recall):
        print(f"  {n} sightings: {100 * plain:5.1f} % {100 * with_support:5.1f} %")

    hits = {way: hits_by(way, sightings) for way in WAYS}
    print(f"{SIGHTINGS:,} sightings to {FILE}; {draw(hits, recall)}")
    print(f"species right in the last {WINDOW} sightings, one species in {TOLD} told:")
    for way in WAYS:
        print(f"  {way:20} {np.mean(hits[way][-WINDOW:]):.1%}")


if __name__ == "__main__":
    main()
