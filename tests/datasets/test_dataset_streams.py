"""Streams: shapes, orders, labels, determinism, and what is said where data is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from streamforest import datasets
from streamforest.datasets import Stream, StreamSpec, changing
from streamforest.datasets.generated import digit_images
from streamforest.errors import ConfigError, DatasetError

EXPECTED = {
    "digits": ((5391, 64), 10, [6, 6, 6, 2]),
    "segments": ((2310, 18), 7, ["path", "foliage", "sky", "path"]),
    "phishing": ((1250, 9), 2, [True, True, True, True]),
    "bananas": ((5300, 2), 2, [False, False, False, True]),
    "rbf": ((20_000, 50), 10, [5, 3, 7, 5]),
    "agrawal": ((20_000, 9), 2, [1, 1, 0, 1]),
    "gaussians": ((100_000, 2), 5, [2, 0, 0, 0]),
}

RECORDED = {
    "usps": ((4_000, 256), 10, [0, 0, 8, 7]),
    "letter": ((10_000, 16), 26, ["F", "D", "K", "D"]),
    "pendigits": ((7_000, 16), 10, [0, 8, 5, 0]),
    "mnist14": ((3_000, 196), 10, [1, 7, 1, 0]),
    "electricity": ((20_000, 6), 2, [1, 1, 1, 1]),
    "covtype": ((10_000, 12), 7, [5, 5, 2, 2]),
}

HELD_OUT = {
    "electricity-later": ((20_000, 6), 2, [0, 1, 0, 0]),
    "covtype-later": ((10_000, 12), 3, [1, 1, 1, 1]),
    "gas-drift": ((6697, 128), 6, ["Ethanol", "Ethanol", "Ethanol", "Ethanol"]),
    "letter-later": ((10_000, 16), 26, ["M", "W", "P", "T"]),
    "mnist14-later": ((3_000, 196), 10, [6, 4, 1, 9]),
    "agrawal-1-6": ((20_000, 9), 2, [0, 0, 1, 0]),
    "waveform": ((10_000, 40), 3, [2, 2, 2, 1]),
    "led": ((10_000, 24), 10, [1, 2, 7, 3]),
    "hyperplane": ((20_000, 10), 2, [0, 1, 0, 0]),
    "sea": ((20_000, 3), 2, [False, False, False, False]),
    "rbf-drift": ((20_000, 10), 4, [1, 2, 2, 3]),
    "random-tree": ((10_000, 8), 4, [3, 3, 1, 3]),
    "moving-squares": ((10_000, 2), 4, [3, 2, 2, 1]),
    "rotating-board": ((10_000, 2), 4, [3, 2, 0, 0]),
    "interchanging-blobs": ((20_000, 2), 15, [13, 0, 1, 12]),
}


LONG = {
    "electricity-all": ((45_312, 6), 2, [1, 1, 1, 1]),
    "covtype-100k": ((100_000, 12), 7, [5, 5, 2, 2]),
}


def check(name: str, shape: tuple[int, int], n_classes: int, labels: list[object]) -> Stream:
    stream = datasets.load(name)
    assert stream.X.shape == shape
    assert stream.X.dtype == np.float64
    assert stream.X.flags.c_contiguous
    assert np.isfinite(stream.X).all()
    assert len(stream.classes) == n_classes
    assert stream.y[:4].tolist() == labels
    assert [type(label) for label in stream.y[:4].tolist()] == [type(label) for label in labels]
    assert stream.name == name
    assert stream.about
    return stream


@pytest.mark.parametrize("name", EXPECTED)
def test_streams_without_data_folder(name: str) -> None:
    check(name, *EXPECTED[name])


@pytest.mark.parametrize("name", RECORDED)
def test_streams_of_recorded_sets(name: str) -> None:
    if reason := datasets.unavailable(name):
        pytest.skip(reason)
    stream = check(name, *RECORDED[name])
    assert stream.categorical == (("wilderness", "soil") if name == "covtype" else ())


@pytest.mark.parametrize("name", LONG)
def test_whole_recordings(name: str) -> None:
    if reason := datasets.unavailable(name):
        pytest.skip(reason)
    check(name, *LONG[name])


@pytest.mark.parametrize("name", HELD_OUT)
def test_streams_that_no_setting_was_chosen_on(name: str) -> None:
    if reason := datasets.unavailable(name):
        pytest.skip(reason)
    stream = check(name, *HELD_OUT[name])
    assert all(0 < event < len(stream) for event in stream.drifts)


def test_a_part_of_a_stream_knows_its_changes() -> None:
    stream = datasets.load("sea")
    assert stream.drifts == (5_000, 10_000, 15_000)
    assert stream.head(7_000).drifts == (5_000,)
    assert stream.take(slice(6_000, 7_000)).drifts == ()
    assert datasets.load("agrawal", events=2_000).drifts == ()


def test_all_streams_are_covered() -> None:
    assert datasets.names() == [*EXPECTED, *RECORDED]
    assert datasets.names(held_out=True) == list(HELD_OUT)
    assert datasets.names(long=True) == list(LONG)


def test_same_rows_every_time() -> None:
    once, again = datasets.load("digits"), datasets.load("digits")
    assert np.array_equal(once.X, again.X)
    assert np.array_equal(once.y, again.y)
    assert datasets.gaussians(100, seed=3).X.tobytes() == datasets.gaussians(100, 3).X.tobytes()
    assert datasets.gaussians(100, seed=3).X.tobytes() != datasets.gaussians(100, 4).X.tobytes()


def test_each_pass_over_digits_has_every_row_once() -> None:
    one, three = datasets.digits(passes=1), datasets.digits(passes=3)
    rows = {row.tobytes() for row in one.X}
    for start in range(0, len(three), len(one)):
        assert {row.tobytes() for row in three.X[start : start + len(one)]} == rows


def test_gaussians_know_their_bayes_rate() -> None:
    stream = datasets.load("gaussians")
    assert stream.bayes_rate == pytest.approx(0.67, abs=0.002)
    assert stream.head(1_000).bayes_rate == pytest.approx(0.67, abs=0.05)
    shares = np.bincount(stream.y) / len(stream)
    assert shares == pytest.approx([0.3, 0.25, 0.2, 0.15, 0.1], abs=0.005)


def _nearest(stream: Stream, rows: range, window: int) -> float:
    """Share of rows whose nearest one among the last `window` has their class."""
    right = []
    for i in rows:
        recent = slice(max(0, i - window), i)
        distance = ((stream.X[recent] - stream.X[i]) ** 2).sum(axis=1)
        right.append(stream.y[recent][distance.argmin()] == stream.y[i])
    return float(np.mean(right))


def test_squares_leave_their_places_to_their_neighbours() -> None:
    stream = datasets.load("moving-squares")
    rows = range(2_000, 3_000)
    assert _nearest(stream, rows, 100) > 0.99
    assert _nearest(stream, rows, 1_000) < 0.6
    assert stream.drifts[:2] == (1_200, 2_400)


def test_a_board_turns_and_its_squares_change_owners_and_back() -> None:
    stream = datasets.load("rotating-board")
    rows = range(2_000, 3_000)
    assert _nearest(stream, rows, 200) > _nearest(stream, rows, 2_000) + 0.2
    assert (np.abs(stream.X) <= 2**0.5).all()
    # on the board itself: who owns what as the first changes begin, and after they were taken back
    angle = -2 * np.pi / 8_000 * np.arange(len(stream))
    x = np.cos(angle) * stream.X[:, 0] - np.sin(angle) * stream.X[:, 1]
    y = np.sin(angle) * stream.X[:, 0] + np.cos(angle) * stream.X[:, 1]
    square = np.clip((x + 1) * 2, 0, 3).astype(int) * 4 + np.clip((y + 1) * 2, 0, 3).astype(int)
    owners = []
    for start in range(0, 2_000, 400):
        rows_of = slice(start, start + 400)
        of_square = [np.bincount(stream.y[rows_of][square[rows_of] == k]) for k in range(16)]
        owners.append([int(counts.argmax()) for counts in of_square])
        assert sum(counts.max() for counts in of_square) >= 396  # but for rounding at the edges
    assert owners[4] == owners[0]
    assert all(owners[k] != owners[k + 1] for k in range(4))


def test_more_and_more_blobs_change_places() -> None:
    stream = datasets.load("interchanging-blobs")
    moved = []
    for change in stream.drifts:
        before, after = slice(change - 1_000, change), slice(change, change + 1_000)
        gone = [
            np.linalg.norm(
                stream.X[before][stream.y[before] == k].mean(axis=0)
                - stream.X[after][stream.y[after] == k].mean(axis=0)
            )
            for k in range(15)
        ]
        moved.append(int((np.array(gone) > 0.6).sum()))
    assert moved == [min(number + 2, 15) for number in range(len(stream.drifts))]


def test_dicts_are_the_rows_in_plain_python() -> None:
    stream = datasets.load("segments", events=5)
    events = list(stream.dicts())
    assert len(events) == 5
    for (x, label), row in zip(events, stream.X):
        assert tuple(x) == stream.features
        assert list(x.values()) == row.tolist()
        assert all(type(value) is float for value in x.values())
        assert type(label) is str


def test_an_unknown_stream_is_answered_with_the_nearest_or_all() -> None:
    with pytest.raises(ConfigError, match=r"'sgments' is not known; did you mean segments\?"):
        datasets.load("sgments")
    with pytest.raises(ConfigError, match=r"'xyz' is not known; valid are digits, segments"):
        datasets.load("xyz")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(DatasetError, match="digits"):
        datasets.register(StreamSpec("digits", "another", datasets.digits))


@pytest.mark.parametrize(
    "call",
    [
        lambda: datasets.digits(passes=0),
        lambda: datasets.gaussians(0),
        lambda: changing.moving_squares(0),
        lambda: changing.rotating_board(0),
        lambda: changing.interchanging_blobs(0),
    ],
)
def test_sizes_below_one_are_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(DatasetError, match="at least 1"):
        call()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path))
    return tmp_path


def test_missing_file_names_file_variable_and_remedy(folder: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        datasets.load("usps")
    for part in (str(folder / "usps.npz"), "STREAMFOREST_DATA", "put the file there"):
        assert part in str(caught.value)
    assert datasets.unavailable("usps") == str(caught.value)
    assert datasets.unavailable("digits") is None


def test_without_the_variable_there_is_no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    assert datasets.data_folder() is None
    with pytest.raises(DatasetError, match=r"set STREAMFOREST_DATA to the folder .* usps\.npz"):
        datasets.load("usps")


def test_digits_are_those_of_scikit_learn() -> None:
    """Published scores on them can be compared."""
    X, y = load_digits(return_X_y=True)
    ours, labels = digit_images()
    assert np.array_equal(ours, X)
    assert np.array_equal(labels, y)
    assert (ours.dtype, labels.dtype) == (np.float64, np.int64)


def test_recorded_set_is_read_as_stored(folder: Path) -> None:
    np.savez(
        folder / "toy.npz",
        x=np.array([[1, 2], [3, 4], [5, 6]], dtype=np.int16),
        y=np.array([1, 0, 1], dtype=np.int32),
        classes=np.array(["10", "7"]),
        scale=0.5,
        test=np.array([False, True, False]),
    )
    toy = datasets.recorded("toy")
    assert toy.X.tolist() == [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]]
    assert toy.y.tolist() == [7, 10, 7]
    assert toy.features == ("x0", "x1")
    train, test = toy.split()
    assert train.X[:, 0].tolist() == [0.5, 2.5]
    assert test.y.tolist() == [10]


def test_shuffled_stream_leaves_test_rows_out(folder: Path) -> None:
    n = 5_000
    np.savez(
        folder / "usps.npz",
        x=np.arange(n)[:, None],
        y=np.arange(n) % 2,
        classes=np.array(["0", "1"]),
        test=np.arange(n) >= 4_500,
    )
    stream = datasets.load("usps")
    assert len(stream) == 4_000
    assert stream.X.max() < 4_500
    assert len(np.unique(stream.X)) == 4_000
    assert (np.diff(stream.X[:, 0]) < 0).any()
    with pytest.raises(DatasetError, match="no official test rows"):
        stream.split()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("x", np.zeros(3)),
        ("x", np.array([["a"], ["b"], ["c"]])),
        ("y", np.array([0, 1])),
        ("y", np.array([0, 1, 2])),
        ("y", np.array([0, -1, 1])),
        ("test", np.array([True])),
        ("x", np.array([[object()], [object()], [object()]])),
    ],
)
def test_broken_file_is_a_dataset_error(folder: Path, field: str, value: object) -> None:
    good = {"x": np.zeros((3, 1)), "y": np.array([0, 1, 0]), "classes": np.array(["a", "b"])}
    np.savez(folder / "toy.npz", **(good | {field: value}))  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=r"toy\.npz"):
        datasets.recorded("toy")


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut short"])
def test_file_that_is_no_archive(folder: Path, content: bytes) -> None:
    (folder / "toy.npz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"toy\.npz"):
        datasets.recorded("toy")


def test_archive_without_a_needed_field(folder: Path) -> None:
    np.savez(folder / "toy.npz", x=np.zeros((2, 1)), y=np.array([0, 0]))
    with pytest.raises(DatasetError, match="classes"):
        datasets.recorded("toy")


def test_stream_refuses_what_a_kernel_could_not_take() -> None:
    X, y = np.zeros((2, 2)), np.array([0, 1])
    for broken in (
        lambda: Stream("s", X.astype(np.float32), y, ("a", "b")),
        lambda: Stream("s", np.asfortranarray(np.zeros((3, 2))), np.arange(3), ("a", "b")),
        lambda: Stream("s", X, y[:1], ("a", "b")),
        lambda: Stream("s", X, np.array(["a", None], dtype=object), ("a", "b")),
        lambda: Stream("s", X, y, ("a", "a")),
        lambda: Stream("s", X, y, ("a", "b"), test=np.array([1, 0])),
        lambda: Stream("s", X, y, ("a", "b"), categorical=("c",)),
    ):
        with pytest.raises(DatasetError, match="stream 's'"):
            broken()
