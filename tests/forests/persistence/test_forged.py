"""Forged snapshots: a `SnapshotError`, or a model that goes on within its time. See support/forging.py."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from river import preprocessing
from support.forging import Forgery, forged, go_on, sealed, try_forgeries, valid

from streamforest import ConsistentForestClassifier, StreamForestClassifier
from streamforest.errors import SnapshotError
from streamforest.forests.core import registry
from streamforest.forests.persistence import snapshot
from streamforest.forests.persistence.snapshot import decode, encode

KINDS = sorted(forest.class_name for forest in registry.entries())
FORGERIES = int(os.environ.get("STREAMFOREST_FORGERIES", "10000"))
"""Of the long form, over all forests."""


def test_forged_numbers_end_in_our_error_or_a_model_that_goes_on() -> None:
    outcome = try_forgeries(KINDS, 50, seed=3, seconds=30)
    assert not outcome.failures
    assert outcome.refused > 50
    assert outcome.accepted > 50


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_forgeries(kind: str) -> None:
    """With every index checked: kernels compiled for that, in a cache of their own."""
    cache = Path(tempfile.gettempdir()) / "streamforest-tests-bounds"
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    refused = accepted = seed = 0
    failures: list[str] = []
    wanted = FORGERIES // len(KINDS)
    while refused + accepted + len(failures) < wanted:
        left = wanted - refused - accepted - len(failures)
        outcome = try_forgeries([kind], min(left, 1_000), seed, 30, environment)
        refused += outcome.refused
        accepted += outcome.accepted
        failures += outcome.failures
        seed += 1
    print(f"{kind}: {refused} refused, {accepted} accepted")
    assert not failures


def test_a_valid_file_goes_on() -> None:
    assert go_on(valid("StreamForestClassifier"))


@pytest.mark.parametrize(
    ("field", "at", "value"),
    [
        ("tree.only_tree_wrong", 0, 400),  # of no race at all: the swap would divide by nothing
        ("tree.challenger_errors", 0, 400),
        ("nodes.generation", 0, 2**53),
        ("ring.readable", 0, 2**40),
        ("nodes.cursor", 0, 2**31),
        ("nodes.n_nodes", 0, 2**62),
        ("nodes.n_structure", 0, 2**31 - 1),
        ("baselines.classes", 0, 2**40),
        ("baselines.met", 0, 2**31 - 1),
        ("nodes.leaf", 0, 2**31 - 1),
    ],
)
def test_counts_and_links_of_a_stream_forest(field: str, at: int, value: int) -> None:
    data = valid("StreamForestClassifier")
    with pytest.raises(
        SnapshotError, match=field.partition(".")[2].replace("only_tree_wrong", "raced")
    ):
        decode(forged(data, Forgery(f"models/main/1/{field}", at, value)))


def test_clocks_of_a_candidate_forest_fit_each_other() -> None:
    data = valid("OnlineForestClassifier")
    for field in ("n_oob", "oob_errors", "n_estimation"):
        with pytest.raises(SnapshotError, match=field):
            decode(forged(data, Forgery(f"models/main/1/tree.{field}", 0, 2**40)))


# ---- metadata


@pytest.mark.parametrize("number", ["1e999", "-1e999", "Infinity", "NaN"])
def test_numbers_beyond_all_numbers_in_the_metadata(number: str) -> None:
    data = encode({"main": ConsistentForestClassifier(n_trees=1, seed=1)}, {"at": 1.5})
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].replace(b'\\"at\\":1.5', b'\\"at\\":' + number.encode())
    assert header != data[8 : 8 + length]
    json.loads(header)  # the file as such is sound
    with pytest.raises(SnapshotError, match="in the metadata"):
        decode(struct.pack("<Q", len(header)) + header + data[8 + length :])


def _with_step(params: Any = None, **state: Any) -> bytes:
    """A pipeline whose scaler has other parameters or another state."""
    scaler = preprocessing.StandardScaler()
    scaler.learn_one({"a": 1.0, "b": 2.0})
    tensors, content = snapshot._parse(
        encode({"main": scaler | StreamForestClassifier(n_trees=1, seed=1)})
    )
    step = content["models"]["main"]["steps"][0]
    step["params"] = step["params"] if params is None else params
    step["state"] |= state
    return sealed(tensors, content)


def test_steps_with_parameters_that_cannot_be_saved_cannot_be_loaded() -> None:
    assert decode(_with_step())
    for params in (
        {"with_std": True, "window_size": 5},
        {"with_std": [], "window_size": None},
        {"with_std": True, "surplus": 1},
        [1],
        "with_std",
        7,
    ):
        with pytest.raises(SnapshotError):
            decode(_with_step(params))


def test_states_of_steps_that_fail_at_an_event_cannot_be_loaded() -> None:
    with pytest.raises(SnapshotError, match="'a' was counted -1 times"):
        decode(_with_step(counts=[["a", -1.0]]))
    with pytest.raises(SnapshotError, match="'b' has variance -2"):
        decode(_with_step(vars=[["b", -2.0]]))


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("Normalizer", {"order": "x"}),
        ("Normalizer", {"order": [2]}),
        ("Select", [["a"]]),
        ("Discard", [None]),
        ("Select", "abc"),
    ],
)
def test_other_steps(kind: str, params: Any) -> None:
    tensors, content = snapshot._parse(
        encode({"main": preprocessing.Normalizer() | StreamForestClassifier(n_trees=1, seed=1)})
    )
    step = content["models"]["main"]["steps"][0]
    step |= {"class": kind, "params": params, "state": {}}
    with pytest.raises(SnapshotError):
        decode(sealed(tensors, content))


@pytest.mark.parametrize(
    ("names", "kinds", "categories"),
    [
        (["a"], [True], [[]]),
        (["a"], [2], [[1]]),
        (["a"], [2], [[None]]),
        (["a"], [2], ["xy"]),
        (["a", "a"], [1, 1], [[], []]),
    ],
)
def test_features_that_no_stream_has(names: Any, kinds: Any, categories: Any) -> None:
    tensors, content = snapshot._parse(
        encode({"main": ConsistentForestClassifier(n_trees=1, seed=1)})
    )
    features = {"names": names, "kinds": kinds, "categories": categories}
    content["models"]["main"]["steps"][0]["features"] = features
    with pytest.raises(SnapshotError):
        decode(sealed(tensors, content))
