"""Streams by name. A new stream is one `register(...)` line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from streamforest.datasets import changing, examples, generated
from streamforest.datasets.recorded import RecordedSet, missing_file
from streamforest.datasets.schedule import schedule
from streamforest.datasets.stream import Stream
from streamforest.datasets.text import texts
from streamforest.errors import ConfigError, DatasetError
from streamforest.text import nearest, shown


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
    drifting
        Whether what has been learned becomes wrong in the course of it.
    held_out
        Kept out of sight while settings were chosen: what a model does here was not tuned.
    scheduled
        Its classes come one after the other.
    long
        A whole recording: the benchmark runs it only when asked for everything.
    text
        Its events are texts, for pipelines that make features of them.
    example
        For the example pipelines: no benchmark runs it.
    """

    name: str
    about: str
    build: Callable[[], Stream]
    file: str | None = None
    drifting: bool = False
    held_out: bool = False
    scheduled: bool = False
    long: bool = False
    text: bool = False
    example: bool = False


_SPECS: dict[str, StreamSpec] = {}


def register(spec: StreamSpec) -> None:
    """Make a stream known by its name."""
    if spec.name in _SPECS:
        raise DatasetError(f"a stream called {spec.name!r} is registered already; rename one")
    _SPECS[spec.name] = spec


def names(
    held_out: bool = False,
    scheduled: bool = False,
    long: bool = False,
    text: bool = False,
    example: bool = False,
) -> list[str]:
    """The streams of the tables, in their order; or those that settings were never chosen on; or
    those whose classes come one after the other; or whole recordings; or those of texts; or those
    of the example pipelines.

    >>> names()[:3], names(held_out=True)[:2]
    (['digits', 'segments', 'phishing'], ['electricity-later', 'covtype-later'])
    >>> names(scheduled=True)
    ['letter-classes', 'clinc-classes', 'omniglot-classes']
    >>> names(long=True)
    ['electricity-all', 'covtype-100k']
    >>> names(example=True)
    ['intents', 'machine-faults']
    """
    wanted = held_out, scheduled, long, text, example
    return [
        name
        for name, spec in _SPECS.items()
        if (spec.held_out, spec.scheduled, spec.long, spec.text, spec.example) == wanted
    ]


def get_spec(name: str) -> StreamSpec:
    """The entry for a name; an unknown name is refused with the nearest known one, or all of them."""
    try:
        return _SPECS[name]
    except KeyError:
        near = nearest(name, list(_SPECS))
        raise ConfigError(f"stream {shown(name)} is not known; {near}") from None


def unavailable(name: str) -> str | None:
    """Why the stream cannot be built on this machine; None if it can."""
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


def _shuffled(name: str, stop: int, start: int = 0) -> Callable[[], Stream]:
    """Training rows of a recorded set, shuffled with seed 0, from `start` to `stop`."""

    def build() -> Stream:
        source = RecordedSet.read(name)
        rows = source.training_rows()
        order = np.random.default_rng(0).permutation(len(rows))
        return replace(source.stream(rows[order[start:stop]]), seed=0, test=None)

    return build


def _by_classes(
    name: str, stop: int, first: int, every: int, classes: int | None = None
) -> Callable[[], Stream]:
    """Shuffled rows of a recorded set, of so many random classes, which come one after the other."""

    def build() -> Stream:
        source = RecordedSet.read(name)
        rng = np.random.default_rng(0)
        chosen = rng.permutation(len(source.labels))[:classes]
        rows = source.training_rows()
        rows = rows[np.isin(source.y[rows], chosen)]
        stream = source.stream(rows[rng.permutation(len(rows))[:stop]])
        return replace(schedule(stream, "random", first, every), seed=0, test=None)

    return build


def _as_recorded(name: str, stop: int | None, start: int = 0) -> Callable[[], Stream]:
    """Rows `start` to `stop` of a set whose recorded order is the order of time."""

    def build() -> Stream:
        return RecordedSet.read(name).stream(slice(start, stop))

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
    StreamSpec(
        "agrawal", "Agrawal loans, sudden drift at event 10,000", generated.agrawal, drifting=True
    ),
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
        drifting=True,
    ),
    StreamSpec(
        "covtype",
        "forest cover, drifts, as recorded",
        _as_recorded("covtype", 10_000),
        "covtype",
        drifting=True,
    ),
):
    register(_spec)

for _spec in (
    StreamSpec(
        "electricity-later",
        "electricity, events 20,000 to 40,000",
        _as_recorded("electricity", 40_000, 20_000),
        "electricity",
        drifting=True,
    ),
    StreamSpec(
        "covtype-later",
        "covtype, events 100,000 to 110,000",
        _as_recorded("covtype", 110_000, 100_000),
        "covtype",
        drifting=True,
    ),
    StreamSpec(
        "gas-drift",
        "gases by sensors that age, as recorded",
        _as_recorded("gas_drift", None),
        "gas_drift",
        drifting=True,
    ),
    StreamSpec(
        "letter-later",
        "letter, the other 10,000 rows",
        _shuffled("letter", 20_000, 10_000),
        "letter",
    ),
    StreamSpec(
        "mnist14-later",
        "mnist14, the next 3,000 rows",
        _shuffled("mnist14", 6_000, 3_000),
        "mnist14",
    ),
    StreamSpec(
        "agrawal-1-6",
        "Agrawal loans, function 1 to 6 at event 10,000",
        partial(generated.agrawal, before=1, after=6),
        drifting=True,
    ),
    StreamSpec("waveform", "waveforms with 19 columns of noise", generated.waveform),
    StreamSpec(
        "led", "a display with 10 % of its segments wrong, 17 more at random", generated.led
    ),
    StreamSpec(
        "hyperplane",
        "a plane that turns, 5 % of the labels wrong",
        generated.hyperplane,
        drifting=True,
    ),
    StreamSpec("sea", "SEA, four concepts, 10 % of the labels wrong", generated.sea, drifting=True),
    StreamSpec("rbf-drift", "random RBF whose centroids move", generated.rbf_drift, drifting=True),
    StreamSpec("random-tree", "labels by a random tree, numbers and codes", generated.random_tree),
    StreamSpec(
        "moving-squares",
        "four squares that move into each other's places and back",
        changing.moving_squares,
        drifting=True,
    ),
    StreamSpec(
        "rotating-board",
        "a board that turns, and whose squares change owners and back",
        changing.rotating_board,
        drifting=True,
    ),
    StreamSpec(
        "interchanging-blobs",
        "15 Gaussians, of which more and more change places",
        changing.interchanging_blobs,
        drifting=True,
    ),
):
    register(replace(_spec, held_out=True))

for _spec in (
    StreamSpec(
        "letter-classes",
        "letter, a new class every 400 events",
        _by_classes("letter", 14_000, first=3, every=400),
        "letter",
    ),
    StreamSpec(
        "clinc-classes",
        "150 intents of short texts, a new one every 50 events",
        _by_classes("clinc150", 9_000, first=5, every=50),
        "clinc150",
    ),
    StreamSpec(
        "omniglot-classes",
        "300 characters of 20 events each, a new one every 18 events",
        _by_classes("omniglot964", 6_000, first=5, every=18, classes=300),
        "omniglot964",
    ),
):
    register(replace(_spec, scheduled=True))

for _spec in (
    StreamSpec(
        "electricity-all",
        "electricity, all 45,312 events",
        _as_recorded("electricity", None),
        "electricity",
    ),
    StreamSpec(
        "covtype-100k",
        "covtype, the first 100,000 events",
        _as_recorded("covtype", 100_000),
        "covtype",
    ),
):
    register(replace(_spec, drifting=True, long=True))

register(StreamSpec("texts", "short texts on three topics, 5,000 words", texts, text=True))

for _spec in (
    StreamSpec("intents", "short requests, a new intent every 250 events", examples.intents),
    StreamSpec(
        "machine-faults",
        "sensors of 40 machines, a new kind of fault every 600 events",
        examples.machine_faults,
    ),
):
    register(replace(_spec, example=True))
