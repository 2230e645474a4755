"""The forests of this package: one line for each.

The package's exports, snapshots, pipeline files, the benchmark and the contract tests read this table, so a
new forest is one folder and one line here. Classes are named by their path and imported on first use:
reading the table imports neither numba nor River.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamforest.errors import ConfigError

if TYPE_CHECKING:
    from streamforest.forests.core.base import Forest


@dataclass(frozen=True)
class Entry:
    """A forest before its class is imported.

    Parameters
    ----------
    kind
        Name in `[model] kind` of a pipeline file.
    path
        Its class, as `module:Class`. Snapshots and `from streamforest import …` use the class's name.
    in_benchmark
        Whether the benchmark measures it: as KIND by dicts, and as KIND-batch by arrays.
    """

    kind: str
    path: str
    in_benchmark: bool = True

    @property
    def class_name(self) -> str:
        """The name of the class without its module."""
        return self.path.partition(":")[2]

    def load(self) -> type[Forest]:
        """The class."""
        module, _, name = self.path.partition(":")
        kind: type[Forest] = getattr(import_module(module), name)
        return kind

    def warm_up(self) -> None:
        """Compile the kernels, or load them from the cache, so that no event waits for them."""
        cls: Any = self.load()  # the base class has no constructor of its own
        cls(seed=0).warm_up()


_ENTRIES: dict[str, Entry] = {}


def register(entry: Entry) -> None:
    """Add a forest; its kind and its class name must be new. The same entry twice is added once."""
    if _ENTRIES.get(entry.kind) == entry:
        return
    if entry.kind in _ENTRIES or find_class(entry.class_name) is not None:
        raise ConfigError(
            f"a forest of kind {entry.kind!r} or class {entry.class_name} is registered already; "
            "rename one"
        )
    _ENTRIES[entry.kind] = entry


def unregister(kind: str) -> None:
    """Remove a forest that was added for a while, such as one of a test."""
    del _ENTRIES[kind]


def entries() -> list[Entry]:
    """All forests, in the order in which they are listed to users."""
    return list(_ENTRIES.values())


def kinds() -> list[str]:
    """The names that `[model] kind` may have.

    >>> kinds()
    ['stream', 'ncm', 'auto', 'consistent', 'online', 'few']
    """
    return list(_ENTRIES)


def get(kind: str) -> Entry:
    """The forest of a kind; KeyError if there is none."""
    return _ENTRIES[kind]


def find_class(name: str) -> Entry | None:
    """The forest whose class has this name.

    >>> find_class("NCMForestClassifier").kind
    'ncm'
    """
    return next((entry for entry in _ENTRIES.values() if entry.class_name == name), None)


# the benchmark compares rivals with the first
_HOME = "streamforest.forests"
register(Entry("stream", f"{_HOME}.stream.forest:StreamForestClassifier"))
register(Entry("ncm", f"{_HOME}.ncm.forest:NCMForestClassifier"))
register(Entry("auto", f"{_HOME}.auto.forest:AutoForestClassifier"))
register(Entry("consistent", f"{_HOME}.candidate.consistent:ConsistentForestClassifier"))
register(Entry("online", f"{_HOME}.candidate.online:OnlineForestClassifier"))
register(Entry("few", f"{_HOME}.few.forest:FewShotForestClassifier"))
