"""A run whose pipeline file says something else than before is refused, with a way out that works."""

from __future__ import annotations

from typing import Any

import pytest

from streamforest import ConsistentForestClassifier, StreamForestClassifier
from streamforest.errors import ChangedError
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.processing.adapters import wrap_model
from streamforest.runtime.processing.models import limits_of

KAFKA = {"topic": "shop.events", "format": "json"}
FILE = {"file": "e.csv", "events": 9}


def forest(seed: int = 0) -> ConsistentForestClassifier:
    return ConsistentForestClassifier(n_trees=2, seed=seed)


def refusal(
    configured: dict[str, Any], source: dict[str, Any], main: str = "", was: Any = None
) -> str:
    """What a run of one model, begun on `source` (or on `was`), says to other settings."""
    models = {"main": forest()}
    wrapped = {name: wrap_model(model) for name, model in models.items()}
    configured = {name: wrap_model(model) for name, model in configured.items()}
    limits = limits_of(list(wrapped.values()), 1, 10, "")
    state = RunState.new(wrapped, limits)
    state.main = main
    plain = state.jsonable(was or source)
    with pytest.raises(ChangedError) as caught:
        RunState.restored(models, plain, configured, limits, source)
    return str(caught.value)


def test_on_kafka_the_way_out_is_another_name_on_the_same_topic() -> None:
    told = refusal({"main": forest(), "x": forest()}, KAFKA)
    assert told.startswith("shadow.x is new: a run keeps the models it began with; remove it, or ")
    assert "another pipeline.name and topics.events = 'shop.events' (" in told
    assert "--fresh" not in told
    told = refusal({"main": forest(5)}, {**KAFKA, "labels": "shop.truth"})
    assert "model.seed is 5 and was 0; put it back, or start over" in told
    assert "topics.events = 'shop.events' and topics.labels = 'shop.truth'" in told


def test_a_file_is_begun_anew_in_place_or_elsewhere() -> None:
    for told in (
        refusal({"main": forest(), "x": forest()}, FILE),
        refusal({"main": forest(5)}, FILE),
        refusal({"main": forest()}, FILE, main="x"),
        refusal({"main": forest()}, {**FILE, "events": 8}, was=FILE),
    ):
        assert told.endswith("--fresh replaces this run, another run.folder keeps it")


def test_a_promoted_model_must_stay() -> None:
    told = refusal({"main": forest()}, KAFKA, main="x")
    assert told.startswith("shadow.x was promoted and is no longer in the pipeline file; put it")


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (
            {"file": "e.csv", "events": 9, "checksum": "a"},
            {"file": "f.csv"},
            "source.file is 'f.csv'",
        ),
        (
            {"file": "e.csv", "events": 9, "checksum": "a"},
            {"events": 8, "checksum": "b"},
            "the content of e.csv is another than it was",
        ),
        (
            {"dataset": "digits", "events": 9, "checksum": "a", "schedule.seed": 0},
            {"schedule.seed": 3, "checksum": "b"},
            "source.schedule.seed is 3 and was 0",
        ),
        (
            {"dataset": "digits", "events": 9, "checksum": "a"},
            {"events": 5, "checksum": "b"},
            "source.events is 5 and was 9",
        ),
    ],
)
def test_one_change_is_told_as_one(was: dict[str, Any], now: dict[str, Any], told: str) -> None:
    text = refusal({"main": forest()}, {**was, **now}, was=was)
    assert text.startswith(f"the run was begun with other settings: {told}")
    assert text.count(" and was ") <= 1


def test_another_kind_is_told_without_all_its_parameters() -> None:
    text = refusal({"main": StreamForestClassifier(n_trees=2)}, FILE)
    assert (
        "model.kind is 'StreamForestClassifier' and was 'ConsistentForestClassifier'; put" in text
    )
    assert text.count(" and was ") == 1
