"""Streams by name. A new stream is one `register(...)` line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from streamforest.datasets import generated
from streamforest.datasets.recorded import RecordedSet, missing_file
from streamforest.datasets.stream import Stream
from streamforest.errors import ConfigError, DatasetError


@dataclass(frozen=True)
class StreamSpec:
    """A stream before it is built.

    Parameters
    ----------
    name
        What `load` and the command line call it.
    about
        One line: what it is and what makes it hard.
    build
        Makes the stream; always the same rows in the same order.
    file
        The recorded set it is made of, where it is made of one.
    """

    name: str
    about: str
    build: Callable[[], Stream]
    file: str | None = None


_SPECS: dict[str, StreamSpec] = {}


def register(spec: StreamSpec) -> None:
    """Make a stream known by its name."""
    if spec.name in _SPECS:
        raise DatasetError(f"a stream called {spec.name!r} is registered already; rename one")
    _SPECS[spec.name] = spec


def names() -> list[str]:
    """All names, in the order of the tables.

    >>> names()[:3]
    ['digits', 'segments', 'phishing']
    """
    return list(_SPECS)


def get_spec(name: str) -> StreamSpec:
    """The entry for a name; an unknown name is refused with the list of known ones."""
    try:
        return _SPECS[name]
    except KeyError:
        known = ", ".join(_SPECS)
        raise ConfigError(f"stream {name!r} is not known; choose from: {known}") from None


def unavailable(name: str) -> str | None:
    """Why the stream cannot be built on this machine; None where it can."""
    spec = get_spec(name)
    return None if spec.file is None else missing_file(spec.file)


def load(name: str, events: int | None = None) -> Stream:
    """Build a stream, or its first `events` events.

    >>> load("bananas", events=3).y.tolist()
    [False, False, False]
    """
    spec = get_spec(name)
    stream = replace(spec.build(), name=spec.name, about=spec.about)
    return stream if events is None else stream.head(events)


def _shuffled(name: str, events: int) -> Callable[[], Stream]:
    """Training rows of a recorded set, shuffled with seed 0, the first `events` of them."""

    def build() -> Stream:
        source = RecordedSet.read(name)
        rows = source.training_rows()
        order = np.random.default_rng(0).permutation(len(rows))
        return replace(source.stream(rows[order[:events]]), seed=0, test=None)

    return build


def _as_recorded(name: str, events: int) -> Callable[[], Stream]:
    """The first `events` rows of a set whose recorded order is the order of time."""

    def build() -> Stream:
        return RecordedSet.read(name).stream(slice(0, events))

    return build


for _spec in (
    StreamSpec("digits", "8×8 digits, three shuffled passes", generated.digits),
    StreamSpec(
        "segments", "image segments", partial(generated.bundled, "segments", "ImageSegments")
    ),
    StreamSpec("phishing", "phishing pages", partial(generated.bundled, "phishing", "Phishing")),
    StreamSpec(
        "bananas",
        "two banana-shaped classes in the plane",
        partial(generated.bundled, "bananas", "Bananas"),
    ),
    StreamSpec("rbf", "random RBF, 50 centroids", generated.rbf),
    StreamSpec("agrawal", "Agrawal loans, sudden drift at event 10,000", generated.agrawal),
    StreamSpec(
        "gaussians", "five overlapping Gaussians, exact Bayes rule known", generated.gaussians
    ),
    StreamSpec("usps", "16×16 digits, shuffled", _shuffled("usps", 4_000), "usps"),
    StreamSpec(
        "letter", "letters in 20 typefaces, shuffled", _shuffled("letter", 10_000), "letter"
    ),
    StreamSpec("pendigits", "digits by pen, shuffled", _shuffled("pendigits", 7_000), "pendigits"),
    StreamSpec("mnist14", "14×14 digits, shuffled", _shuffled("mnist14", 3_000), "mnist14"),
    StreamSpec(
        "electricity",
        "price up or down, drifts, as recorded",
        _as_recorded("electricity", 20_000),
        "electricity",
    ),
    StreamSpec(
        "covtype", "forest cover, drifts, as recorded", _as_recorded("covtype", 10_000), "covtype"
    ),
):
    register(_spec)
