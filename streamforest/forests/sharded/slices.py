"""Some trees of a group of arrays."""

from __future__ import annotations

from typing import Any, TypeVar

from streamforest.kernels.core.array_table import declared

_PER_TREE = {"trees": 1, "tree slots": 2}
Group = TypeVar("Group", bound=tuple[Any, ...])


def trees_of(arrays: Group, first: int, last: int) -> Group:
    """The same arrays with trees `first` to `last` only; what belongs to no tree is not copied."""
    changed = {}
    for array, (name, one) in zip(arrays, declared(type(arrays)).items()):
        rows = _PER_TREE.get(str(one.dimensions[0]))
        if rows is not None:
            changed[name] = array[rows * first : rows * last].copy()
    return arrays._replace(**changed)  # type: ignore[attr-defined,no-any-return]
