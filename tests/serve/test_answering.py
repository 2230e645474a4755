"""Answers are those of the pipeline, and asking leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.memory_log import MemoryBroker
from support.owner_process import Process, some_events

from streamforest import ConsistentForestClassifier
from streamforest.forests.persistence import snapshot
from streamforest.io.codec.decoders import by_value
from streamforest.io.codec.events import BOUNDS, decoder, fields_decoder
from streamforest.io.features.rules import FeatureRules
from streamforest.runtime.operate.model import open_snapshot
from streamforest.serve.answering import Answer, Decoders, Message, Question, Refusal, View, answer
from streamforest.serve.fixed import FixedModel

DECODERS = Decoders.of(FeatureRules(), BOUNDS, late=False)
MIXED = [
    {
        "when": f"2024-0{1 + i % 9}-1{i % 9}",
        "size": i / 3,
        "colour": ["red", "blue"][i % 2],
        "y": i % 3,
    }
    for i in range(40)
]


def ask(view: View, *events: Any, top: int = 3) -> list[Answer | Refusal]:
    values = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in events]
    (told,) = answer(view, [Question(values, "json", top)], DECODERS)
    return told


def state_of(process: Process) -> bytes:
    """Everything that a snapshot would hold."""
    state = process.run.state
    models = {name: model.estimator for name, model in state.models.items()}
    return snapshot.encode(models, state.jsonable({}))


def fed(tmp_path: Path, events: list[Any]) -> Process:
    broker = MemoryBroker()
    broker.add(events)
    process = Process(broker, tmp_path)
    process.run.recover()
    process.run.consume()
    return process


@pytest.fixture
def owner(tmp_path: Path) -> Process:
    return fed(tmp_path, some_events(0, 60))


def test_an_answer_is_what_the_pipeline_predicts_next(owner: Process) -> None:
    view = View(owner.run.state, 7, "main")
    events = some_events(100, 5)
    told = ask(view, *[{"x": e["x"], "id": n} for n, e in enumerate(events)])
    offline = owner.run.state.models["main"].forest.predict_proba_many([e["x"] for e in events])
    for n, (one, row) in enumerate(zip(told, offline.to_numpy())):
        assert isinstance(one, Answer)
        assert one.probability == row.max()
        assert dict(one.top)[offline.columns[row.argmax()]] == row.max()
        assert (one.id, one.commit, one.model, one.learned) == (n, 7, "main", 60)


def test_a_batch_is_as_its_events_one_by_one_in_both_formats(owner: Process) -> None:
    view = View(owner.run.state, 7, "main")
    events = [{"x": e["x"], "id": n} for n, e in enumerate(some_events(100, 9))]
    whole = ask(view, *events)
    assert [ask(view, one)[0] for one in events] == whole
    packed = [msgspec.msgpack.encode(one) for one in events]
    questions = [Question([one], "msgpack", 3) for one in packed]
    assert [one for (one,) in answer(view, questions, DECODERS)] == whole


STRANGE: list[Any] = [
    {"x": {"a": "text", "new": "2024-01-01", "more": "four words of a text"}},
    {"x": {"a": 1e300, "b": None, "c": [1, 2]}},
    {"x": [1, 2, 3]},
    {"x": {}},
    {"flat": 1, "layout": "x"},
    b"{",
    b"\xff\xfe",
    {"x": {"when": "2031-01-01"}},
    {"when": "2031-01-01", "size": "large", "colour": 7, "unknown": "2020-02-02"},
    {"when": 17, "size": None},
]


@pytest.mark.parametrize("events", [[], some_events(0, 60), MIXED, MIXED[:3]], ids=len)
def test_asking_leaves_no_trace(tmp_path: Path, events: list[Any]) -> None:
    """Whatever is asked, the state stays to the byte, and later answers do not depend on it."""
    process = fed(tmp_path, events)
    before = state_of(process)
    view = View(process.run.state, 7, "main")
    first = ask(view, *STRANGE, *MIXED)
    assert state_of(process) == before
    backwards = ask(view, *reversed([*STRANGE, *MIXED]))
    assert backwards[::-1] == first
    assert ask(View(process.run.state, 7, "main"), *STRANGE, *MIXED) == first
    assert state_of(process) == before


def test_a_question_reads_columns_as_the_stream_would(tmp_path: Path) -> None:
    """Dates count from the stream's first one, texts that are numbers are numbers."""
    process = fed(tmp_path, MIXED)
    view = View(process.run.state, 7, "main")
    asked = {key: value for key, value in MIXED[7].items() if key != "y"}
    (told,) = ask(view, {**asked, "size": str(asked["size"])})
    assert ask(view, asked) == [told]
    stream = process.run.state.reader
    event = stream.read(Message(json.dumps(asked).encode()), by_value(decoder(), fields_decoder()))
    x = stream.convert(event.x)
    assert any(name.startswith("when") and name != "when" for name in x)
    row = process.run.state.models["main"].forest.predict_proba_many([x]).to_numpy()[0]
    assert isinstance(told, Answer)
    assert told.probability == row.max()


def test_bad_events_among_good_ones_are_refused_by_themselves(owner: Process) -> None:
    view = View(owner.run.state, 7, "main")
    good = {"x": {"a": 0.5, "b": 0.2}}
    told = ask(view, good, b"[]", good, {"y": "no features"}, good)
    assert [type(one) for one in told] == [Answer, Refusal, Answer, Refusal, Answer]
    assert told[0] == told[2] == told[4]
    assert isinstance(told[1], Refusal)
    assert told[1].error.reason == "invalid"


def test_an_event_without_any_known_feature_is_refused(tmp_path: Path) -> None:
    """Mistyped, or laid out in another way: an answer would mean nothing."""
    view = View(fed(tmp_path, some_events(0, 60)).run.state, 1, "main")
    known = view.state.models["main"].forest._features.names
    typo, empty, good = ask(view, {"x": {"milage": 3.0}}, {"x": {}}, {"x": {known[0]: 1.0, "q": 2}})
    assert isinstance(typo, Refusal)
    assert typo.error.reason == "feature"
    assert "it has 'milage'; the model knows " in typo.error.message
    assert isinstance(empty, Answer), "everything may be missing"
    assert isinstance(good, Answer)


def test_top_is_each_question_s_own(owner: Process) -> None:
    view = View(owner.run.state, 7, "main")
    value = json.dumps({"x": {"a": 0.5, "b": 0.2}}).encode()
    questions = [Question([value], "json", top) for top in (1, 2, 1)]
    sizes = [len(one.top) for (one,) in answer(view, questions, DECODERS)]  # type: ignore[union-attr]
    assert sizes == [1, 2, 1]


def test_a_model_that_knows_nothing_answers_with_no_label(tmp_path: Path) -> None:
    process = fed(tmp_path, [])
    (told,) = ask(View(process.run.state, 0, "main"), {"x": {"a": 1}})
    assert isinstance(told, Answer)
    assert (told.label, told.probability, told.top, told.learned) == (None, 0.0, [], 0)


def test_a_saved_model_reads_its_columns_as_it_learned_them(tmp_path: Path) -> None:
    """Not by the first value that is asked: a shop is a category though it is written as a number."""
    forest = ConsistentForestClassifier(n_trees=3, seed=1)
    for i in range(200):
        forest.learn_one({"shop": str(i % 4), "time": 1.7e12 + i % 7}, "odd" if i % 2 else "even")
    forest.save(tmp_path / "model.safetensors")
    model = FixedModel(open_snapshot(tmp_path / "model.safetensors"))
    with model.reading() as view:
        told = ask(view, *[{"x": {"shop": i, "time": 1.7e12 + i}} for i in range(4)])
        assert told == [ask(view, {"x": {"time": 1.7e12 + i, "shop": str(i)}})[0] for i in range(4)]
    for i, one in enumerate(told):
        said = forest.predict_proba_one({"shop": str(i), "time": 1.7e12 + i})
        assert isinstance(one, Answer)
        assert dict(one.top) == {label: p for label, p in said.items() if p > 0}
    assert {one.label for one in told if isinstance(one, Answer)} == {"even", "odd"}
