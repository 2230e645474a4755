"""A forest in one file, known by its line in the registry alone, does all that a forest does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from river import checks
from support import contract, roundtrip
from support.toy_forest import TOY, ToyForestClassifier

import streamforest
from streamforest.bench.forest import models
from streamforest.cli import root
from streamforest.errors import ConfigError, SnapshotError
from streamforest.forests.core import registry
from streamforest.forests.core.registry import Entry
from streamforest.forests.persistence.snapshot import decode, encode


@pytest.fixture
def toy() -> Iterator[type[ToyForestClassifier]]:
    """The toy forest, registered for the length of a test."""
    registry.register(TOY)
    yield ToyForestClassifier
    registry.unregister(TOY.kind)


def test_the_package_exports_it(toy: Any) -> None:
    assert streamforest.ToyForestClassifier is toy
    assert "ToyForestClassifier" in dir(streamforest)
    assert registry.get("toy").load() is toy


def test_it_keeps_the_contract(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    contract.batches_and_threads_give_the_same_bits(toy, {}, monkeypatch, events=2_000)
    contract.a_new_category_is_unknown_to_its_own_prediction(toy, {})
    contract.predicting_changes_nothing(toy, {"share": 3})
    contract.frames_and_arrays_equal_dicts(toy, {})
    contract.copies_go_on_alike(toy)


@pytest.mark.parametrize(
    "check", list(checks.yield_checks(ToyForestClassifier())), ids=lambda check: str(check.__name__)
)
def test_it_passes_rivers_checks(toy: Any, check: Any) -> None:
    check(toy(n_trees=5, seed=42))


def test_snapshots_hold_it(toy: Any) -> None:
    made = [made for made in roundtrip.forests() if made.kind == "ToyForestClassifier"]
    for number, zoo in enumerate(roundtrip.ZOO):
        assert roundtrip.run(made[0], zoo, trips=5, dense=2, seed=number) > 0


def test_a_snapshot_of_a_forest_that_is_not_registered_is_refused(toy: Any) -> None:
    data = encode({"main": toy(n_trees=1, seed=0)})
    registry.unregister("toy")
    with pytest.raises(SnapshotError, match="ToyForestClassifier"):
        decode(data)
    registry.register(TOY)
    assert type(decode(data)[0]["main"]) is toy


def test_a_pipeline_file_names_it(toy: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    file = tmp_path / "toy.toml"
    file.write_text(
        f'[pipeline]\nname = "toy"\n[source]\ndataset = "digits"\nmax_events = 900\n'
        f'[model]\nkind = "toy"\nshare = 5\n[run]\nfolder = "{folder}"\n'
    )
    result = CliRunner().invoke(root, ["run", str(file), "--quiet"])
    assert result.exit_code == 0, result.output
    (newest, *_) = sorted(folder.rglob("*.safetensors"), reverse=True)
    model = streamforest.load(newest)
    assert type(model) is toy
    assert (model.share, model.n_learned) == (5, 900)


def test_the_benchmark_measures_it(toy: Any, tmp_path: Path) -> None:
    assert {"toy", "toy-batch"} <= set(models.names())
    asked = ["--stream", "digits", "--events", "300", "--trees", "2", "--repeats", "1"]
    named = ["--model", "toy", "--model", "toy-batch"]
    result = CliRunner().invoke(root, ["bench", "forest", *asked, *named])
    assert result.exit_code == 0, result.output
    assert "ToyForest, dicts" in result.output
    assert "ToyForest, batches" in result.output


def test_one_name_is_one_forest(toy: Any) -> None:
    registry.register(TOY)  # the same once more
    for other in (Entry("toy", "x:OtherForest"), Entry("other", "x:NCMForestClassifier")):
        with pytest.raises(ConfigError, match="registered already"):
            registry.register(other)


def test_reading_the_registry_imports_no_forest() -> None:
    code = "import sys, streamforest; dir(streamforest); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numba", "river", "numpy"} & set(said.stdout.split())
