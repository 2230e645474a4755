"""Category tables of a snapshot: each stands once, however many models hold it.

The models of a pipeline and its admission see the same events, so their features have the same categories.
A file lists each table once; whoever has it refers to it by its number, or by null if it has no categories.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from streamforest.errors import SnapshotError


def share(holders: list[dict[str, Any]]) -> list[list[Any]]:
    """Replace the tables under `categories` of each holder by references; returns the tables.

    Within one holder each feature has a table of its own, also where two are equal: what a file
    unfolds to is bounded by what it holds and the number of its models.

    >>> one, other = {"categories": [["a"], [], ["a"]]}, {"categories": [["a"], ["b"]]}
    >>> share([one, other]), one["categories"], other["categories"]
    ([['a'], ['a'], ['b']], [0, None, 1], [0, 2])
    """
    tables: list[list[Any]] = []
    numbers: dict[tuple[str, int], int] = {}
    for holder in holders:
        uses: dict[str, int] = {}
        references: list[int | None] = []
        for table in holder["categories"]:
            if not table:
                references.append(None)
                continue
            content = json.dumps(table)
            uses[content] = uses.get(content, 0) + 1
            number = numbers.setdefault((content, uses[content]), len(tables))
            if number == len(tables):
                tables.append(table)
            references.append(number)
        holder["categories"] = references
    return tables


def unfold(holders: list[dict[str, Any]], tables: Any) -> None:
    """Put the tables back in the place of references; SnapshotError if they do not fit."""
    if type(tables) is not list or not all(type(table) is list and table for table in tables):
        raise SnapshotError("the snapshot is damaged: categories")
    used: set[int] = set()
    for holder in holders:
        references = holder["categories"]
        own = [number for number in references if number is not None]
        known = all(type(number) is int and 0 <= number < len(tables) for number in own)
        if not known or len(set(own)) != len(own):
            raise SnapshotError("the snapshot is damaged: a reference to categories")
        used.update(own)
        holder["categories"] = [[] if number is None else tables[number] for number in references]
    if len(used) != len(tables):
        raise SnapshotError("the snapshot is damaged: categories of no feature")


def holders(models: Mapping[str, Any], runtime: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All parts of the metadata that have category tables: forests, then parts of the run's state."""
    for name in sorted(models):
        for step in models[name]["steps"]:
            if "features" in step:
                yield step["features"]
    for key in sorted(runtime):
        part = runtime[key]
        if type(part) is dict and "categories" in part:
            yield part
