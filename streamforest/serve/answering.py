"""From the bytes of events to answers, by a model as of one commit. Nothing is learned.

Events are read, judged and turned into rows by the pipeline's own reader and admission, and answered by the
same call that answers them in the stream, with nothing to learn. What it says is a function of the commit and
of the request alone: any number of replicas give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from streamforest.errors import EventError, FeatureError, InputError
from streamforest.io.codec.decoders import RecordDecoder, by_value
from streamforest.io.codec.events import (
    Bounds,
    Event,
    Format,
    decoder,
    fields_decoder,
    has_type,
    is_label,
)
from streamforest.io.features.frozen import FrozenReader
from streamforest.io.features.rules import FeatureRules
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.processing.adapters import Model, unknown_features
from streamforest.runtime.processing.advancing import (
    answers,
    plain_levels,
    plain_novelty,
    top_classes,
)
from streamforest.runtime.processing.intake import reason_of
from streamforest.serve.problems import Told

Kind = Literal["json", "msgpack", "own"]
"""The format of a request: `own` is whatever the pipeline's topic has."""


class Answer(msgspec.Struct, omit_defaults=True, gc=False):
    """The answer to one event: the fields of a prediction in the topic, and the model that gave it.

    `learned` is the number of events that the model had learned, `commit` the commit it is of; a model from
    a snapshot file has none.
    """

    label: Any
    probability: float
    top: list[tuple[Any, float]]
    model: str
    learned: int
    commit: int | None = None
    id: Any = None
    novelty: float | None = None
    coarse: Any = None
    coarse_probability: float | None = None
    novel_in: Any = None


class Refusal(msgspec.Struct, gc=False):
    """Why one of several events was not answered."""

    error: Told


@dataclass(frozen=True)
class Message:
    """The body of a request as a record of a topic."""

    value: bytes
    key: None = None
    headers: tuple[()] = ()
    offset: int = 0
    timestamp: int = 0


@dataclass(frozen=True)
class Decoders:
    """How the events of each kind of request are decoded."""

    json: RecordDecoder
    msgpack: RecordDecoder
    own: RecordDecoder | None = None
    """By the pipeline's decoder or its schema registry; None where its topic is JSON or MessagePack."""

    @classmethod
    def of(
        cls, rules: FeatureRules, bounds: Bounds, late: bool, own: RecordDecoder | None = None
    ) -> Decoders:
        """The decoders of a pipeline's rules and bounds; `late` where labels come by themselves."""
        names = (rules.label, rules.id, rules.coarse)

        def codec(format: Format) -> RecordDecoder:
            typed = decoder(format, bounds, late, names) if has_type(names) else None
            return by_value(typed, fields_decoder(format, bounds), rules.id)

        return cls(codec("json"), codec("msgpack"), own)

    def get(self, kind: Kind) -> RecordDecoder:
        """The decoder of a kind of request."""
        found: RecordDecoder | None = getattr(self, kind)
        assert found is not None
        return found


@dataclass
class View:
    """A model as of one commit, to be read by one thread at a time."""

    state: RunState
    commit: int | None
    main: str
    reader: FrozenReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = FrozenReader(self.state.reader)

    @property
    def learned(self) -> int:
        """Events that the model has learned."""
        return self.state.models[self.main].n_learned


class Source(Protocol):
    """Where answers come from: a replica, or a snapshot."""

    decoders: Decoders
    top: int
    """Classes that an answer lists unless the request says how many."""


@dataclass
class Question:
    """The events of one request, as they came."""

    events: Sequence[bytes]
    kind: Kind
    top: int


def read_event(view: View, value: bytes, decode: RecordDecoder) -> Event:
    """The event in a message; EventError if it is none, or a label without an event."""
    event = view.reader.read(Message(value), decode)
    if is_label(event):
        raise EventError("invalid event: a label alone; only an event can be predicted", "invalid")
    return event


def answer(
    view: View, questions: Sequence[Question], decoders: Decoders
) -> list[list[Answer | Refusal]]:
    """The answers to the events of each question, in order. All of them go through the model as one batch,
    which gives the same bits as one by one.
    """
    gate, columns, model = view.state.gate, view.reader.columns, view.state.models[view.main]
    identities: list[Any] = []
    found: list[list[Answer | Refusal | None]] = []
    for question in questions:
        decode = decoders.get(question.kind)
        places: list[Answer | Refusal | None] = []
        found.append(places)
        for value in question.events:
            try:
                event = read_event(view, value, decode)
                if columns.passes_numbers:
                    _refuse_unknown(model, event.x)
                    gate.admit(event.x, None, True, columns.convert)
                else:
                    x = columns.convert(event.x)
                    _refuse_unknown(model, x)
                    gate.admit(x, None)
                identities.append(event.id)
                places.append(None)
            except InputError as error:
                places.append(Refusal(Told(reason_of(error), str(error))))
    said = iter(_predicted(view, identities, max(question.top for question in questions)))
    told: list[list[Answer | Refusal]] = []
    for question, places in zip(questions, found):
        filled = [next(said) if place is None else place for place in places]
        for one in filled:
            if isinstance(one, Answer):
                one.top = one.top[: question.top]
        told.append(filled)
    return told


def _refuse_unknown(model: Model, x: Any) -> None:
    """FeatureError if an event has features, and the model knows none of them: names were mistyped, or it
    was laid out in another way.
    """
    names = unknown_features(model, [x]) if x else None
    if names is not None:
        have, want = names
        raise FeatureError(
            f"the event has no feature that the model knows; it has {have}; the model knows {want}"
        )


def _predicted(view: View, identities: list[Any], top: int) -> list[Answer]:
    """What the model says of the rows that were let in."""
    rows = view.state.gate.take()
    if not identities:
        return []
    model = view.state.models[view.main]
    said = model.advance(rows)
    upper = () if said.coarse is None else answers(said.coarse, model.categories_)
    told = zip(
        answers(said.posteriors, model.classes_),
        top_classes(said.posteriors, model.classes_, top),
        identities,
        plain_novelty(said.novelty, len(rows)),
        plain_levels(said, upper, model.categories_, None),
        strict=True,
    )
    learned = model.n_learned
    made = []
    for label, likely, identity, novelty, level in told:
        best = likely[0][1] if likely else 0.0
        one = Answer(label, best, likely, view.main, learned, view.commit, identity, novelty)
        if level is not None:
            one.coarse, one.coarse_probability, _, one.novel_in = level
        made.append(one)
    return made
