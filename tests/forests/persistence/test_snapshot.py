"""Snapshots: canonical bytes, exact resume, and files that were tampered with."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import compose, preprocessing
from safetensors.numpy import save as to_bytes
from support.events import growing_stream

import streamforest
from streamforest import (
    AutoForestClassifier,
    ConsistentForestClassifier,
    FewShotForestClassifier,
    NCMForestClassifier,
    StreamForestClassifier,
)
from streamforest.errors import InputError, SnapshotError
from streamforest.forests.core import registry
from streamforest.forests.persistence import snapshot
from streamforest.forests.persistence.snapshot import decode, encode

GOLDEN = Path(__file__).parents[2] / "golden"
KINDS = [forest.load() for forest in registry.entries()]


def _bounded(kind: Any, size: int) -> dict[str, Any]:
    """Parameters that hold a forest to about `size` bytes a tree, so that its bounds are met."""
    if kind is StreamForestClassifier:
        return {"max_ring_bytes": 4 * size, "challenge_rate": 0.02}
    if kind is NCMForestClassifier:
        return {"memory": size // 100, "swap_after": 128, "strategy": "hirf"}
    if kind is FewShotForestClassifier:
        return {"memory": size // 100, "regrow": 0.1, "few_rows": 20}
    if kind is AutoForestClassifier:
        return {"max_ring_bytes": 4 * size, "memory": size // 100, "swap_after": 128}
    return {"max_fringe_bytes": size}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("saved_at", [0, 1, 37, 1_000])
def test_a_loaded_model_goes_on_as_if_never_saved(kind: Any, saved_at: int, tmp_path: Path) -> None:
    xs, ys = growing_stream(2_000)
    model = kind(n_trees=4, seed=2, n_jobs=2, **_bounded(kind, 50_000))
    model.advance(xs[:saved_at], ys[:saved_at])
    path = tmp_path / "model.safetensors"
    model.save(path)
    other = streamforest.load(path)
    assert other.n_jobs == 1  # a run-time setting, not part of the model
    assert encode({"main": other}) == path.read_bytes()
    expected = model.advance(xs[saved_at:], ys[saved_at:])
    np.testing.assert_array_equal(other.advance(xs[saved_at:], ys[saved_at:]), expected)
    assert encode({"main": other}) == encode({"main": model})


@pytest.mark.parametrize("scaler", ["StandardScaler", "MinMaxScaler", "MaxAbsScaler", "Normalizer"])
def test_river_pipelines(scaler: str, tmp_path: Path) -> None:
    xs, ys = growing_stream(1_200)
    events = [({k: v for k, v in x.items() if type(v) is float}, y) for x, y in zip(xs, ys)]
    pipeline = (
        compose.Discard("f2")
        | getattr(preprocessing, scaler)()
        | ConsistentForestClassifier(n_trees=3, seed=1)
    )
    for x, y in events[:600]:
        pipeline.predict_one(x)
        pipeline.learn_one(x, y)
    streamforest.save(pipeline, tmp_path / "p")
    other = streamforest.load(tmp_path / "p")
    assert isinstance(other, compose.Pipeline)
    for x, y in events[600:]:
        assert other.predict_proba_one(x) == pipeline.predict_proba_one(x)
        pipeline.learn_one(x, y)
        other.learn_one(x, y)
    assert encode({"main": other}) == encode({"main": pipeline})


def test_what_cannot_be_saved_is_refused_by_name(tmp_path: Path) -> None:
    forest = ConsistentForestClassifier(n_trees=1, seed=1)
    with pytest.raises(SnapshotError, match="RobustScaler cannot be saved"):
        streamforest.save(preprocessing.RobustScaler() | forest, tmp_path / "p")
    with pytest.raises(SnapshotError, match="window_size"):
        streamforest.save(preprocessing.StandardScaler(window_size=9) | forest, tmp_path / "p")
    with pytest.raises(SnapshotError, match="cannot save a StandardScaler"):
        streamforest.save(preprocessing.StandardScaler(), tmp_path / "p")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_several_models_and_runtime_state(tmp_path: Path) -> None:
    models = {kind.__name__: kind(n_trees=1, seed=0) for kind in KINDS}
    snapshot.write(tmp_path / "s", models, {"position": 17, "name": "é"})
    loaded, runtime = snapshot.read(tmp_path / "s")
    assert runtime == {"position": 17, "name": "é"}
    assert {name: type(model).__name__ for name, model in loaded.items()} == {n: n for n in models}
    with pytest.raises(SnapshotError, match=r"holds no model 'main'; it has .*Consistent"):
        streamforest.load(tmp_path / "s")
    (name, *_) = models
    assert type(streamforest.load(tmp_path / "s", model=name)).__name__ == name
    sidecar = json.loads((tmp_path / "s.json").read_text())
    assert sidecar["versions"]["numpy"] == np.__version__
    (tmp_path / "s.json").unlink()
    snapshot.read(tmp_path / "s")


def test_metadata_too_large_for_a_header_is_an_array() -> None:
    """safetensors refuses a header beyond 100 MB; a full label store is of that size."""
    forest = ConsistentForestClassifier(n_trees=1, seed=1)
    runtime = {"labels": ['"\\' * 500_000] * 26}
    data = encode({"main": forest}, runtime)
    assert int.from_bytes(data[:8], "little") < 100_000
    models, again = decode(data)
    assert again == runtime
    assert encode(models, again) == data
    damaged = bytearray(data)
    damaged[data.rindex(b'\\\\"') - 9] ^= 1
    with pytest.raises(SnapshotError, match="damaged"):
        decode(bytes(damaged))


def test_both_places_of_the_metadata_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = ConsistentForestClassifier(n_trees=1, seed=1)
    data = encode({"main": forest}, {"position": 17})
    monkeypatch.setattr(snapshot, "_MAX_HEADER", 10)
    beside = encode({"main": forest}, {"position": 17})
    assert beside != data
    assert decode(beside)[1] == decode(data)[1] == {"position": 17}
    assert encode(*decode(data)) == beside
    tensors, content = snapshot._parse(beside)
    assert content["format"] == snapshot.FORMAT
    for metadata in ([], np.zeros(3, np.uint8), np.frombuffer(b"[1]", np.uint8)):
        odd = {**tensors, **({"metadata": metadata} if len(metadata) else {})}
        with pytest.raises(SnapshotError, match="damaged"):
            decode(to_bytes(odd, {"streamforest": '{"format":2,"metadata":"array"}'}))


def test_what_safetensors_refuses_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_MAX_HEADER", 1 << 40)
    with pytest.raises(SnapshotError, match="cannot be made"):
        encode({"main": ConsistentForestClassifier(n_trees=1, seed=1)}, {"a": "x" * 101_000_000})


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="nowhere"):
        streamforest.load(tmp_path / "nowhere")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(SnapshotError, match="text: not a snapshot"):
        streamforest.load(tmp_path / "text")
    with pytest.raises(SnapshotError, match="cannot write"):
        streamforest.save(ConsistentForestClassifier(seed=1), tmp_path / "no" / "folder")


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("format-*/*.safetensors")), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_golden_files_load_for_ever(path: Path) -> None:
    model = streamforest.load(path)
    told = path.with_suffix(".json")  # beside the first file of its kind
    told = told if told.exists() else GOLDEN / "format-1" / told.name
    expected = json.loads(told.read_text())
    xs, _ = growing_stream(1_500)
    assert model.n_learned == expected["learned"]
    assert [model.predict_one(x) for x in xs[-50:]] == expected["answers"]
    if path.parent.name == f"format-{snapshot.FORMAT}":
        assert encode({"main": model}) == path.read_bytes()
    else:  # written anew as of today, and the same from there on
        other = decode(encode({"main": model}))[0]["main"]
        xs, ys = growing_stream(1_500)
        np.testing.assert_array_equal(model.advance(xs, ys), other.advance(xs, ys))
        assert encode({"main": model}) == encode({"main": other})


def test_there_are_golden_files_of_every_format_and_revision() -> None:
    first = {"consistent-1", "ncm-1", "online-1", "stream-1", "stream-2"}
    assert {path.stem for path in GOLDEN.glob("format-1/*.safetensors")} == first
    last = {f"{entry.kind}-{entry.load()._revision}" for entry in registry.entries()}
    assert {path.stem for path in GOLDEN.glob("format-2/*.safetensors")} == last


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(GOLDEN.glob("format-2*/*.safetensors"))
        if (GOLDEN / "format-1" / path.name).exists()
    ],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_a_file_of_an_old_format_is_the_same_model_from_there_on(path: Path) -> None:
    old, new = (streamforest.load(one) for one in (GOLDEN / "format-1" / path.name, path))
    assert encode({"main": old}) == encode({"main": new})
    xs, ys = growing_stream(1_500)
    np.testing.assert_array_equal(old.advance(xs, ys), new.advance(xs, ys))
    assert encode({"main": old}) == encode({"main": new})


def test_category_tables_stand_once() -> None:
    """Model, shadow and the run's admission hold the same ones; equal tables of two features are two."""
    rng = np.random.default_rng(0)
    words = [f"wörd {k}" * 20 for k in range(200)]
    xs = [{"a": words[k % 200], "b": words[k % 200], "c": float(k)} for k in range(400)]
    ys = rng.integers(0, 2, 400).tolist()
    main, shadow = (ConsistentForestClassifier(n_trees=1, seed=k) for k in range(2))
    for model in (main, shadow):
        model.advance(xs, ys)
    tables = [list(codes) for codes in main._features.categories]
    runtime = {"admission": {"categories": tables, "labels": [0, 1]}, "events": 400}
    data = encode({"main": main, "other": shadow}, runtime)
    assert data.count(words[7].encode()) == 2  # UTF-8, once for each of the features
    models, again = decode(data)
    assert again == runtime
    assert encode(models, again) == data
    assert runtime["admission"]["categories"] is tables  # nothing of the caller's was changed
    for model in models.values():
        assert [list(codes) for codes in model._features.categories] == tables
    tensors, content = _tensors(data)
    features = content["models"]["main"]["steps"][0]["features"]
    assert features["categories"] == [0, 1, None]
    for wrong in ([0, 0, None], [0, 2, None], [0, True, None], [0, -1, None], [[], [], []]):
        features["categories"] = wrong
        with pytest.raises(SnapshotError, match="damaged"):
            decode(_sealed(tensors, content))


def test_labels_that_no_utf8_holds_are_saved(tmp_path: Path) -> None:
    model = ConsistentForestClassifier(n_trees=1, seed=1)
    model.advance([{"é": 1.0, "\ud800": "漢"}] * 2, ["\udfff🙂", "\\ud800"])
    data = encode({"main": model})
    assert "漢".encode() in data
    loaded = decode(data)[0]["main"]
    assert loaded.classes_ == model.classes_
    assert encode({"main": loaded}) == data


def test_a_later_revision_is_refused_with_a_remedy() -> None:
    tensors, content = _tensors(encode({"main": StreamForestClassifier(n_trees=1, seed=1)}))
    content["models"]["main"]["steps"][0]["revision"] = 99
    with pytest.raises(SnapshotError, match=r"revision 99.*use the one that wrote it"):
        decode(_sealed(tensors, content))


def test_a_split_cannot_stand_in_for_one_of_another_tree() -> None:
    """Random changes will not find this one: the lefts of all trees together look right."""
    model = ConsistentForestClassifier(n_trees=2, seed=1, alpha0=1, tau=0)
    model.advance([{"a": float(k)} for k in range(40)], [k % 2 for k in range(40)])
    tensors, content = _tensors(encode({"main": model}))
    prefix = "models/main/0/nodes."
    n = {name: tensors[prefix + name].dtype for name in ("feature", "left", "n_nodes")}
    forged = {name: array for name, array in tensors.items() if not name.startswith(prefix)}
    for name, array in tensors.items():
        if name.startswith(prefix):
            forged[name] = array[:0]
    forged[prefix + "n_nodes"] = np.array([3, 3], n["n_nodes"])
    forged[prefix + "feature"] = np.array([0, 0, -1, -1, -1, -1], n["feature"])
    forged[prefix + "left"] = np.array([1, 4, -1, -1, -1, -1], n["left"])
    forged[prefix + "threshold"] = np.zeros(6)
    forged[prefix + "missing_right"] = np.zeros(6, np.uint8)
    for name in ("n_classes", "errors", "born", "active"):
        forged[prefix + name] = np.zeros(4, tensors[prefix + name].dtype)
    with pytest.raises(SnapshotError, match="left"):
        decode(_sealed(forged, content))


def test_parameters_are_those_the_model_was_made_with() -> None:
    made = ConsistentForestClassifier(n_trees=np.int64(2), lam=10, seed=1)
    same = ConsistentForestClassifier(n_trees=2, lam=10.0, seed=1)
    made.tau = 0.7  # too late: it changes nothing, so it must not be saved
    made.n_splits = 9
    xs, ys = growing_stream(300)
    made.advance(xs, ys)
    same.advance(xs, ys)
    assert encode({"main": made}) == encode({"main": same})


# ---- tampered files


def _tensors(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    return snapshot._parse(data)


def _sealed(tensors: dict[str, np.ndarray], content: dict[str, Any]) -> bytes:
    """A file with a checksum that fits, so that the checks behind it are met."""
    content = {k: v for k, v in content.items() if k != "sha256"}
    content["sha256"] = snapshot._digest(content, tensors)
    return to_bytes(tensors, {"streamforest": snapshot._canonical(content)})


_ODD = [-1, 0, 1, 2, 3, 7, 255, 2**31 - 1, -(2**31), 2**62, -(2**62)]


def _odd_value(rng: np.random.Generator, old: Any) -> Any:
    choices: list[Any] = [None, True, "x", "", [], {}, 1.5, *_ODD, 10**30]
    if isinstance(old, list):
        choices += [old[:-1], old + old[:1], old[::-1]]
    return choices[int(rng.integers(0, len(choices)))]


def _mutate_json(rng: np.random.Generator, value: Any) -> Any:
    """Change, drop or add something somewhere in a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = sorted(value)[int(rng.integers(0, len(value)))]
        out = dict(value)
        if rng.random() < 0.1:
            del out[key]
        elif rng.random() < 0.05:
            out["surplus"] = 1
        else:
            out[key] = _mutate_json(rng, value[key])
        return out
    if isinstance(value, list) and value and rng.random() < 0.7:
        out_list = list(value)
        k = int(rng.integers(0, len(value)))
        out_list[k] = _mutate_json(rng, value[k])
        return out_list
    return _odd_value(rng, value)


def _mutate_tensor(rng: np.random.Generator, tensors: dict[str, np.ndarray]) -> None:
    name = sorted(tensors)[int(rng.integers(0, len(tensors)))]
    array = tensors[name].copy()
    kind = int(rng.integers(0, 6))
    if kind == 0:
        del tensors[name]
        return
    if kind == 1:
        array = array[: int(rng.integers(0, len(array) + 1))]
    elif kind == 2:
        array = np.concatenate([array, array[:1]])
    elif kind == 3:
        with np.errstate(invalid="ignore"):
            array = array.astype([np.int64, np.int32, np.float64][int(rng.integers(0, 3))])
    elif len(array):
        for _ in range(int(rng.integers(1, 4))):
            k = int(rng.integers(0, len(array)))
            if array.dtype.kind == "f":
                array[k] = [np.nan, np.inf, -1.0, 1e300, 0.0][int(rng.integers(0, 5))]
            else:
                odd = _ODD[int(rng.integers(0, len(_ODD)))]
                info = np.iinfo(array.dtype)
                array[k] = min(max(odd, int(info.min)), int(info.max))
    tensors[name] = array


def _mutated(rng: np.random.Generator, data: bytes) -> bytes:
    kind = int(rng.integers(0, 6))
    if kind == 0:  # bits
        out = bytearray(data)
        for _ in range(int(rng.integers(1, 5))):
            out[int(rng.integers(0, len(out)))] ^= 1 << int(rng.integers(0, 8))
        return bytes(out)
    if kind == 1:  # length
        return data[: int(rng.integers(0, len(data)))] + b"x" * int(rng.integers(0, 3))
    if kind == 2:  # the header's own fields: shapes, offsets, types
        length = int.from_bytes(data[:8], "little")
        header = _mutate_json(rng, json.loads(data[8 : 8 + length]))
        text = json.dumps(header).encode()
        odd_length = len(text) if rng.random() < 0.9 else int(rng.integers(0, 2**40))
        return struct.pack("<Q", odd_length) + text + data[8 + length :]
    tensors, content = _tensors(data)
    if kind == 3:
        content = {**content, "models": _mutate_json(rng, content["models"])}
    else:
        for _ in range(int(rng.integers(1, 3))):
            if tensors:
                _mutate_tensor(rng, tensors)
    return _sealed(tensors, content)


def _mutation_rounds(kind: Any, rounds: int, seed: int) -> tuple[int, int]:
    """Refused and accepted files; anything else is an exception, a crash or the time-out."""
    xs, ys = growing_stream(600)
    model = kind(n_trees=2, seed=2, **_bounded(kind, 20_000))
    model.advance(xs[:500], ys[:500])
    data = encode({"main": preprocessing.StandardScaler() | model})
    rng = np.random.default_rng(seed)
    refused = accepted = 0
    for _ in range(rounds):
        try:
            models, _ = decode(_mutated(rng, data))
        except SnapshotError:
            refused += 1
            continue
        accepted += 1
        for loaded in models.values():
            forest = loaded
            if isinstance(loaded, compose.Pipeline):
                forest = list(loaded.steps.values())[-1]
            with contextlib.suppress(InputError):  # a changed bound, say: refused, not broken
                forest.advance(xs[500:], ys[500:])
            encode({"main": forest})
    return refused, accepted


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files_end_in_our_error_or_a_valid_model(kind: Any) -> None:
    refused, accepted = _mutation_rounds(kind, 1_000, seed=1)
    assert refused > 500
    assert accepted > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_mutated_files(kind: Any) -> None:
    refused, accepted = _mutation_rounds(kind, 10_000, seed=2)
    print(f"{kind.__name__}: {refused} refused, {accepted} accepted")
    assert refused + accepted == 10_000


def test_a_run_folder_stands_for_its_newest_snapshot(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "p"
    (folder / "snapshots").mkdir(parents=True)
    for events, seed in ((999_999_999_999, 1), (1_000_000_000_000, 2), (50, 3)):
        path = folder / "snapshots" / f"s-{events:012d}.safetensors"
        streamforest.save(ConsistentForestClassifier(n_trees=1, seed=seed), path)
    assert streamforest.load(folder).seed == 2
    assert streamforest.load(str(folder / "snapshots")).seed == 2
    with pytest.raises(SnapshotError, match="holds no snapshot; expected a run folder or a file"):
        streamforest.load(tmp_path)
    (tmp_path / "partition-3").mkdir()
    with pytest.raises(SnapshotError, match="give the folder of a partition: partition-3"):
        streamforest.load(tmp_path)


@pytest.mark.parametrize("kind", [entry.kind for entry in registry.entries()])
def test_a_forest_without_a_seed_goes_on_as_if_never_saved(kind: str) -> None:
    xs, ys = growing_stream(1_500)
    model = registry.get(kind).load()(n_trees=2)
    if kind in ("ncm", "auto"):
        model = registry.get(kind).load()(n_trees=2, memory=200)  # rows are drawn that leave it
    model.advance(xs[:800], ys[:800])
    other = decode(encode({"main": model}))[0]["main"]
    np.testing.assert_array_equal(
        model.advance(xs[800:], ys[800:]), other.advance(xs[800:], ys[800:])
    )
    assert encode({"main": model}) == encode({"main": other})
