"""A configuration is checked as a whole: every problem is named, with its remedy, at once."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from streamforest.errors import ConfigError, StreamForestWarning
from streamforest.forests.sharded import ray_actors
from streamforest.runtime.config.load import Pipeline, load_pipeline
from streamforest.runtime.processing.models import _refusals

PIPELINES = Path(__file__).parents[2] / "pipelines"
GOOD = """
[pipeline]
name = "p"
[source]
dataset = "digits"
max_events = 100
"""


def load(tmp_path: Path, text: str, *flags: str) -> Pipeline:
    path = tmp_path / "p.toml"
    path.write_text(text, encoding="utf-8")
    return load_pipeline(path, {}, flags)


def problems(tmp_path: Path, text: str, *flags: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, *flags)
    _, _, rest = str(caught.value).partition("p.toml: ")
    heading, *several = rest.split("\n  ")
    if several:
        assert heading == f"{len(several)} problems"
    return several or [heading]


def test_defaults(tmp_path: Path) -> None:
    pipeline = load(tmp_path, GOOD)
    config = pipeline.config
    assert config.run.folder == Path("runs/p")
    assert (config.run.batch_size, config.run.snapshot_interval_events) == (100, 1000)
    assert (config.models[0].kind, config.source.schedule) == ("auto", None)
    assert pipeline.source.total == 100
    assert list(pipeline.models) == ["main"]


def test_a_forest_for_each_partition_needs_transactions(tmp_path: Path) -> None:
    text = '[pipeline]\nname = "p"\n[kafka]\nbootstrap_servers = "h:1"\nmodel_scope = "partition"\n'
    assert load(tmp_path, text).config.kafka.model_scope == "partition"
    (told,) = problems(tmp_path, text + 'delivery = "at-least-once"\n')
    assert told == "kafka.model_scope = 'partition': works with delivery = 'exactly-once' only"


def test_names_by_which_metrics_may_be_asked_for(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).config.metrics_allowed == ()
    names = ["consumer", "a_b.example.org.", "x" * 63]
    flag = f"metrics.allowed_hosts={json.dumps(names)}"
    assert load(tmp_path, GOOD, flag).config.metrics_allowed == tuple(names)
    for wrong in (
        "consumer",
        "[1]",
        '["a:9108"]',
        '["*"]',
        '[""]',
        '["a..b"]',
        '["http://a"]',
        "7",
    ):
        (told,) = problems(tmp_path, GOOD, f"metrics.allowed_hosts={wrong}")
        assert told.startswith("metrics.allowed_hosts = ")
        assert told.endswith("host names without ports, such as ['consumer']")


def test_the_shipped_pipelines_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("embeddings", "species"):  # what scripts in pipelines/ write
        Path(f"{name}.jsonl").write_text('{"x": [0.5, 1.0], "y": "a"}\n', encoding="utf-8")
    files = sorted(PIPELINES.glob("*.toml"))
    assert files
    for path in files:
        load_pipeline(path)


def test_all_problems_at_once_each_with_key_value_and_remedy(tmp_path: Path) -> None:
    text = """
[pipelin]
[pipeline]
name = "a/b"
[source]
dataset = "digit"
max_eventz = 3
[source.schedule]
first = 0
[model]
kind = "consistent"
n_tres = 10
tau = -1
lam = "much"
[run]
batch_size = true
"""
    found = problems(tmp_path, text, "run.snapshot_interval_events=0.5")
    expected = [
        "pipelin: unknown table; did you mean pipeline?",
        "pipeline.name = 'a/b': expected a name of letters",
        "source.max_eventz: unknown key in [source]; did you mean max_events?",
        "source.dataset = 'digit': no such data set; did you mean digits?",
        "source.schedule.first = 0: expected a whole number from 1 to 1,000,000",
        "model.n_tres: unknown key in [model]; did you mean n_trees?",
        "model.lam = 'much': use a number",
        "model.tau = -1: use a number",
        "run.batch_size = True: expected a whole number",
        "run.snapshot_interval_events = 0.5 (from --set): expected a whole number",
    ]
    assert len(found) == len(expected)
    for start, problem in zip(expected, found):
        assert problem.startswith(start)


def test_missing_tables_name_what_is_needed(tmp_path: Path) -> None:
    assert [p.split(";")[0] for p in problems(tmp_path, "")] == [
        "pipeline.name: missing",
        "source.dataset: missing",
    ]


def test_a_value_where_a_table_belongs(tmp_path: Path) -> None:
    assert problems(tmp_path, 'model = "consistent"\n' + GOOD) == [
        "model = 'consistent': expected a table, [model]"
    ]


def test_values_of_a_strange_shape(tmp_path: Path) -> None:
    assert problems(tmp_path, "shadow = [1, 2]\n" + GOOD) == [
        "shadow = '…': expected tables of the form [[shadow]]"
    ]
    (order,) = problems(tmp_path, GOOD, "source.schedule.order=[1, [2]]")
    assert order.startswith("source.schedule.order = [1, [2]] (from --set): expected 'recorded'")
    (folder,) = problems(tmp_path, GOOD, 'run.folder="a\\u0000b"')
    assert folder.endswith("expected a path")


def test_unknown_kind_and_far_off_parameter_list_what_is_valid(tmp_path: Path) -> None:
    (kind,) = problems(tmp_path, GOOD, "model.kind=perceptron")
    assert kind.endswith("no such model; valid are stream, ncm, auto, consistent, online, few")
    (name,) = problems(tmp_path, GOOD, "model.kind=consistent", "model.xyz=1")
    assert "unknown key in [model]; valid are kind, n_trees, lam" in name


def test_a_schedule_that_does_not_fit_the_labels(tmp_path: Path) -> None:
    (order,) = problems(tmp_path, GOOD, 'source.schedule.order=["cat"]')
    assert order.startswith("source: order lists ['cat'], labels the stream does not have")


def test_a_long_value_is_cut_in_the_message(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, GOOD, f"run.batch_size={'9' * 5000}")
    assert len(problem) < 200


def test_the_same_file_builds_the_same_forest(tmp_path: Path) -> None:
    first, second = (load(tmp_path, GOOD, "model.n_trees=3") for _ in range(2))
    events = [row.event for row in first.source.rows(0)]
    x, y = [event.x for event in events], [event.y for event in events]
    a, b = (p.models["main"].forest.advance(x, y) for p in (first, second))
    assert (a == b).all()


def test_a_forest_beyond_all_memory_is_refused_with_the_bound(tmp_path: Path) -> None:
    for trees in (10_001, 999_999_999_999, 10**18):
        (told,) = problems(tmp_path, GOOD, f"model.n_trees={trees}")
        assert told.endswith("use a whole number of at least 1 and at most 10000")
    (told,) = problems(tmp_path, GOOD, "model.kind=consistent", f"model.max_nodes={10**18}")
    assert told.endswith(f"at least 1 and at most {1 << 53}")


def test_a_model_that_does_not_fit_is_a_refusal() -> None:
    def forest(trees: int = 1, seed: int = 0) -> object:
        if trees > 3:
            raise MemoryError
        return object()

    model, (problem,) = _refusals(forest, {"seed": 0, "trees": 9})  # type: ignore[arg-type]
    assert (model, problem.parameter) == (None, "trees")
    assert "does not fit into memory" in problem.message


def test_truth_is_written_as_toml_has_it(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, GOOD + '[model]\nkind = "stream"\ndrift = 1\n')
    assert told == "model.drift = 1: use true or false"


def test_trees_in_actors_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_ray = GOOD + '[model]\nkind = "stream"\nexecutor = "ray"\n'
    monkeypatch.setattr(ray_actors, "is_installed", lambda: True)
    forest = load(tmp_path, with_ray, "model.n_actors=3").models["main"].forest
    assert (forest.executor, forest.n_actors, forest._shards) == ("ray", 3, None)
    for kind in ("ncm", "auto", "few"):
        assert problems(tmp_path, with_ray, f"model.kind={kind}") == [
            f"model.executor: no parameter of kind = '{kind}'; it belongs to kind = 'stream' or "
            "'consistent' or 'online'"
        ]
    (told,) = problems(tmp_path, with_ray, "model.n_actors=4")
    assert told.endswith("n_actors=4: use at most 3 for n_trees=20, 8 trees to an actor")
    (told,) = problems(tmp_path, with_ray, "model.executor=processes")
    assert told.endswith("use one of 'threads', 'ray'")
    monkeypatch.setattr(ray_actors, "is_installed", lambda: False)
    assert problems(tmp_path, with_ray) == [
        "model.executor = 'ray': executor = 'ray' needs ray: pip install 'streamforest[ray]'"
    ]


def test_a_parameter_of_another_kind_names_that_kind(tmp_path: Path) -> None:
    text = GOOD + '[model]\nkind = "stream"\nlam = 3\nn_tree = 4\n'
    assert problems(tmp_path, text) == [
        "model.lam: no parameter of kind = 'stream'; it belongs to kind = 'consistent'",
        "model.n_tree: unknown key in [model]; did you mean n_trees?",
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("StreamForestClassifier", "stream"), ("NCMForest", "ncm"), ("Online", "online")],
)
def test_a_class_is_no_kind_but_tells_which(tmp_path: Path, written: str, meant: str) -> None:
    (told,) = problems(tmp_path, GOOD, f"model.kind={written}")
    assert told.endswith(f"no such model; did you mean {meant}?")


def test_a_variable_is_named_where_it_makes_a_table_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(GOOD)
    with pytest.raises(ConfigError, match=r"foo \(from STREAMFOREST_FOO__BAR\): unknown table"):
        load_pipeline(path, {"STREAMFOREST_FOO__BAR": "1"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("STREAMFOREST_MODEL_N_TREES", "STREAMFOREST_MODEL__N_TREES"),
        ("STREAMFOREST_DEAD_LETTERS_POLICY", "STREAMFOREST_DEAD_LETTERS__POLICY"),
    ],
)
def test_one_underscore_is_warned_of(tmp_path: Path, name: str, meant: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(GOOD)
    with pytest.warns(StreamForestWarning, match=f"{name}: has no effect; .*: {meant}$"):
        load_pipeline(path, {name: "4"})


def test_other_variables_are_not(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(GOOD)
    others = ("STREAMFOREST_DATA", "STREAMFOREST_KAFKA_PASSWORD", "STREAMFOREST_RUN_SERVICE_HOST")
    with warnings.catch_warnings():
        warnings.simplefilter("error", StreamForestWarning)
        load_pipeline(path, dict.fromkeys(others, "x"))
