"""The classes that appeared last, and how well each is recognised by its age.

The age of an event is its number among the events of its class: age 1 brings the class, and nobody can know
it. Young classes are counted event by event, in order; older ones a batch at a time, which costs next to
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from streamforest.observe.evaluation import AGE_LIMITS
from streamforest.observe.page.points import Amount, Count
from streamforest.text import printable

MAX_TRACKED = 12
"""Classes that are followed; those before them are only remembered by their birth."""
MAX_BIRTHS = 200
GOAL = 0.8
"""A class is learned once so much of its last `_LAST` events was recognised."""
_LAST = 20
_AGES = len(AGE_LIMITS) + 1
_YOUNG = AGE_LIMITS[-1] + _LAST
_NOW = 100  # events of a class that "now" looks back on, older ones counting half and less
_NAME = 64
_MAX_LABEL = 4_096  # bytes of a label that is followed

Label = str | int | float | bool


class Birth(msgspec.Struct, forbid_unknown_fields=True):
    """When a class was new."""

    name: Annotated[str, msgspec.Meta(max_length=8 * _NAME)]
    at: Amount
    learned: Count


class NewClass(msgspec.Struct, forbid_unknown_fields=True):
    """A class that is followed from its birth on."""

    label: Label
    at: Amount
    learned: Count
    """Events that had been learned when it appeared."""
    events: Count = 0
    correct: Count = 0
    ages: list[tuple[Count, Count]] = []
    """Events and correct ones over its first events, its next ones and so on, as in `AGE_LIMITS`."""
    last: Annotated[str, msgspec.Meta(max_length=_LAST)] = ""
    """Whether each of its last events was recognised, while it is young."""
    now: tuple[Amount, Amount] = (0.0, 0.0)
    """Events and correct ones lately."""
    reached: Count | None = None
    """Events that it took to be recognised."""

    @property
    def name(self) -> str:
        """The label as text that is safe to show."""
        return printable(str(self.label), _NAME)

    def count(self, hits: list[bool]) -> None:
        """Its next events, in order, while the class is young."""
        first, done = self.events, 0
        for age, limit in enumerate((*AGE_LIMITS, None)):
            stop = len(hits) if limit is None else max(done, min(len(hits), limit - first))
            if stop > done or (limit is not None and limit > first):
                while len(self.ages) <= age:
                    self.ages.append((0, 0))
                right = sum(hits[done:stop])
                self.ages[age] = self.ages[age][0] + stop - done, self.ages[age][1] + right
            done = stop
            if done == len(hits):
                break
        seen = self.last + "".join("1" if hit else "0" for hit in hits)
        if self.reached is None:
            begin = len(self.last) - first  # what stands before it in `seen`
            for end in range(max(_LAST, len(self.last) + 1), len(seen) + 1):
                if seen.count("1", end - _LAST, end) >= GOAL * _LAST:
                    self.reached = end - begin
                    break
        self.last = seen[-_LAST:]
        self.events += len(hits)
        self.correct += sum(hits)
        self._lately(len(hits), sum(hits))

    def count_many(self, events: int, correct: int) -> None:
        """Events of a class that is no longer young."""
        before = self.ages[-1]
        self.ages[-1] = before[0] + events, before[1] + correct
        self.events += events
        self.correct += correct
        self._lately(events, correct)
        if self.reached is None and self.now[1] >= GOAL * self.now[0]:
            self.reached = self.events

    def _lately(self, events: int, correct: int) -> None:
        seen, hits = self.now[0] + events, self.now[1] + correct
        self.now = (seen / 2, hits / 2) if seen >= _NOW else (seen, hits)


class RecentClasses(msgspec.Struct, forbid_unknown_fields=True):
    """The last births, and the last of them followed.

    >>> recent = RecentClasses()
    >>> recent.born(["b"], at=0.0, learned=7)
    >>> recent.add(["a", "b", "b"], ["a", "a", "b"], {("a", "a"): 1, ("b", "a"): 1, ("b", "b"): 1})
    >>> recent.followed[0].events, recent.followed[0].correct, recent.births[0].name
    (2, 1, 'b')
    """

    births: list[Birth] = []
    total: Count = 0
    followed: list[NewClass] = []

    def born(self, labels: Sequence[Any], at: float, learned: int) -> None:
        """Classes that are new. One that is followed already was born before a commit that was not made."""
        followed = {one.label for one in self.followed}
        for label in labels:
            if label in followed:
                continue
            self.total += 1
            self.births.append(Birth(printable(str(label), _NAME), at, learned))
            if _can_be_kept(label):
                followed.add(label)
                self.followed.append(NewClass(label, at, learned))
        del self.births[:-MAX_BIRTHS]
        del self.followed[:-MAX_TRACKED]

    def add(
        self,
        truth: Sequence[Any],
        predicted: Sequence[Any],
        pairs: Mapping[tuple[Any, Any], int],
    ) -> None:
        """A batch of labelled events; `pairs` counts each pair of label and prediction."""
        if not self.followed:
            return
        young = {one.label: one for one in self.followed if one.events < _YOUNG}
        old: dict[Any, list[Any]] = {
            one.label: [one, 0, 0] for one in self.followed if one.events >= _YOUNG
        }
        there = False
        for (label, guess), count in pairs.items():
            there = there or label in young
            row = old.get(label)
            if row is not None:
                row[1] += count
                row[2] += count if label == guess else 0
        for one, events, correct in old.values():
            if events:
                one.count_many(events, correct)
        if there:
            hits: dict[Any, list[bool]] = {label: [] for label in young}
            for label, guess in zip(truth, predicted):
                if label in hits:
                    hits[label].append(label == guess)
            for label, some in hits.items():
                if some:
                    young[label].count(some)

    def is_sound(self) -> bool:
        """Whether it is one that a run can have: it may have been read from a file."""
        return (
            len(self.births) <= MAX_BIRTHS
            and len(self.followed) <= MAX_TRACKED
            and len({one.label for one in self.followed}) == len(self.followed)
            and all(
                len(one.ages) <= _AGES and (one.events < _YOUNG or len(one.ages) == _AGES)
                for one in self.followed
            )
        )

    def forget_after(self, learned: int) -> None:
        """Drop what was born after an event that is about to be learned again."""
        before = len(self.births)
        self.births = [one for one in self.births if one.learned < learned]
        self.total = max(0, self.total - before + len(self.births))
        self.followed = [one for one in self.followed if one.learned < learned]


def _can_be_kept(label: Any) -> bool:
    """Whether a label can stand in the file: a stranger's may be huge, or no Unicode."""
    try:
        return len(msgspec.json.encode(label)) <= _MAX_LABEL
    except (ValueError, OverflowError, TypeError, msgspec.MsgspecError):
        return False
