"""Events by class for the largest classes, in bounded memory, whatever labels strangers send.

A counter must only ever grow, so a class that becomes one of the largest gets a series of its own from
that moment on; what it had before stays in "other". One that is overtaken loses its series, and its
further events are counted as "other".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from streamforest.text import printable

TOP = 20
_TRACKED = 10 * TOP
_AHEAD = 1.1  # how much larger a class must be than one it replaces: no flicker
OTHER = "other"


class TopClasses(Collector):
    """The `TOP` largest classes by volume and the rest.

    Volumes are kept as in Misra and Gries' algorithm for frequent elements: of at most `_TRACKED`
    classes, so that each class with more than a share of 1 / `_TRACKED` of all events is among them.

    >>> top = TopClasses("class_events", "By class.", CollectorRegistry(), top=1)
    >>> top.add({"a": 5, "b": 2}); top.add({"b": 40}); top.add({"b": 1, "a": 1})
    >>> sorted((s.labels["class"], s.value) for s in next(iter(top.collect())).samples)
    [('b', 1), ('other', 43)]
    """

    def __init__(self, name: str, text: str, registry: CollectorRegistry, top: int = TOP) -> None:
        self._name, self._text, self._max_shown = name, text, top
        self._volume: dict[Any, int] = {}
        self._shown: dict[Any, int] = {}
        self._other = 0
        self._lock = Lock()
        registry.register(self)

    def add(self, counts: Mapping[Any, int]) -> None:
        """Count the labels of a batch, then look who is among the largest now."""
        with self._lock:
            for label, count in counts.items():
                self._volume[label] = self._volume.get(label, 0) + count
                if label in self._shown or len(self._shown) < self._max_shown:
                    self._shown[label] = self._shown.get(label, 0) + count
                else:
                    self._other += count
            self._forget()
            self._replace()

    def _forget(self) -> None:
        """Keep the largest; all lose what the largest of the forgotten had."""
        if len(self._volume) <= _TRACKED:
            return
        kept = heapq.nlargest(_TRACKED + 1, self._volume.items(), key=lambda item: item[1])
        lost = kept.pop()[1]
        self._volume = {label: count - lost for label, count in kept if count > lost}

    def _replace(self) -> None:
        """Let classes that have grown clearly larger take the place of the smallest shown."""
        if len(self._shown) < self._max_shown or len(self._volume) <= self._max_shown:
            return
        waiting = [item for item in self._volume.items() if item[0] not in self._shown]
        largest = heapq.nlargest(self._max_shown, waiting, key=lambda item: item[1])
        for label, count in largest:
            smallest = min(self._shown, key=lambda one: self._volume.get(one, 0))
            if count <= _AHEAD * self._volume.get(smallest, 0):
                return
            del self._shown[smallest]
            self._shown[label] = 0

    def collect(self) -> Iterable[CounterMetricFamily]:
        """What a scrape sees. Two labels that print alike (1 and "1") share a series."""
        family = CounterMetricFamily(self._name, self._text, labels=["class"])
        with self._lock:
            counts_by_text: dict[str, int] = {}
            for label, count in self._shown.items():
                text = printable(str(label), 64)
                counts_by_text[text] = counts_by_text.get(text, 0) + count
            counts_by_text[OTHER] = counts_by_text.get(OTHER, 0) + self._other
        for text, count in counts_by_text.items():
            family.add_metric([text], count)
        yield family

    def describe(self) -> Iterable[CounterMetricFamily]:
        """Its name, without its values."""
        yield CounterMetricFamily(self._name, self._text)
