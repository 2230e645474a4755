"""Late labels without a broker: time, matching, bounds; however the records are cut, the same end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from integration.late_feed import late_messages

from streamforest.errors import ConfigError, SnapshotError
from streamforest.io.codec.decoders import by_value
from streamforest.io.codec.events import Format, decoder, encode, fields_decoder
from streamforest.io.log import Records
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.labels.event_time import IN_A_ROW, StreamClock
from streamforest.runtime.labels.store import LabelStore, LateRules
from streamforest.runtime.processing.intake import take_in
from streamforest.runtime.processing.limits import Limits
from streamforest.text import kept_bytes

NOW = 1_700_000_000_000
FAR = 253_402_300_799_000
"""The last millisecond but one of the year 9999."""
RULES = LateRules(wait_ms=3_000, clock_step_ms=60_000)


def records(n: int) -> list[Any]:
    return [
        SimpleNamespace(offset=i, timestamp=m.timestamp, key=None, value=m.value, headers=())
        for i, m in enumerate(late_messages(n, lanes=1, start=NOW))
    ]


def run(several: list[Any], cut: int) -> tuple[RunState, list[int]]:
    """The state after all records, taken in so many at a time, and the offsets that were refused."""
    state = RunState.new({}, Limits(min_class_events=2), RULES)
    decode = by_value(decoder(labels=True), fields_decoder())
    refused: list[int] = []
    for first in range(0, len(several), cut):
        part = several[first : first + cut]
        take_in(
            state,
            Records.of(("t", 0), part),
            decode,
            lambda record, partition, error: refused.append(record.offset),
        )
    return state, refused


def test_where_the_records_are_cut_changes_nothing() -> None:
    several = records(1_500)
    results = [run(several, cut) for cut in (1, 7, 500, 10_000)]
    states = [state.jsonable({}) for state, _ in results]
    assert states[0] == states[1] == states[2] == states[3]
    assert results[0][1] == results[3][1]
    counts = states[0]["labels"]["counts"]
    assert all(count for outcome, count in counts.items() if outcome != "refused"), counts
    store = results[0][0].late
    assert store is not None
    labels = counts["matched"] + counts["duplicate"] + counts["unmatched"] + len(store.early)
    events = counts["matched"] + counts["expired"] + counts["at_once"] + counts["never"]
    assert events + len(store.waiting) + labels + len(results[0][1]) == len(several)


def test_a_store_is_the_same_after_a_snapshot() -> None:
    state, _ = run(records(450), 100)
    assert state.late is not None
    assert state.late.waiting
    for entry in state.late.waiting.values():
        entry.guesses.append("a")
    told = state.late.state(["main"])
    again = LabelStore.from_state(RULES, told, ["main"])
    assert again.state(["main"]) == told
    assert again.bytes == state.late.bytes
    damaged: list[Any] = [None, {}, {**told, "clock": 3}, {**told, "waiting": [[1, "%", 0, 0, []]]}]
    for one in damaged:
        with pytest.raises(SnapshotError, match="label store"):
            LabelStore.from_state(RULES, one, ["main"])


@pytest.mark.parametrize("odd", [FAR, 0, -1])
def test_one_record_from_another_age_does_not_move_the_time(odd: int) -> None:
    clock = StreamClock(60_000)
    for i in range(200):
        clock.move(odd if i % 7 == 3 else NOW + i)
    clock.move(NOW + 200)
    assert clock.now == NOW + 200


def test_many_records_ahead_move_the_time_to_the_middle_of_them() -> None:
    store = LabelStore(RULES)
    for i in range(IN_A_ROW):
        store.tick(NOW + i)
        store.wait(f"a{i}", {"f": 1.0}, NOW + i)
    assert store.clock.now == NOW + IN_A_ROW // 2
    later = NOW + 86_400_000  # nobody sent anything for a day
    for i in range(IN_A_ROW):
        store.tick(later + i)
        store.wait(f"b{i}", {"f": 1.0}, later + i)
        expired = 0 if i < IN_A_ROW - 1 else IN_A_ROW
        assert store.counts["expired"] == expired  # those of the day before, none of today's
    assert store.clock.now == later + IN_A_ROW // 2
    assert list(store.waiting) == [f"b{i}" for i in range(IN_A_ROW)]


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_label_that_was_held_and_is_refused_can_be_sent_again(form: Format) -> None:
    """Two labels are held while there is room for one more class; the second finds none."""
    state = RunState.new({}, Limits(max_classes=1), RULES)
    decode = by_value(decoder(form, labels=True), fields_decoder(form))
    sent = [{"id": i, "y": f"class {i}"} for i in (1, 2)]
    sent += [{"id": i, "x": {"f": 1.0}} for i in (1, 2)]
    several = [
        SimpleNamespace(offset=i, timestamp=NOW, key=None, value=encode(one, form), headers=())
        for i, one in enumerate(sent)
    ]
    letters: list[Any] = []
    take_in(
        state,
        Records.of(("t", 0), several),
        decode,
        lambda record, partition, error: letters.append(record),
        None,
        form,
    )
    (letter,) = letters
    assert (letter.offset, letter.value) == (1, several[1].value)


def _ticks(store: LabelStore, since: int, n: int = IN_A_ROW) -> None:
    for i in range(n):
        store.tick(since + i)


def _again(store: LabelStore) -> LabelStore:
    """As after a snapshot."""
    return LabelStore.from_state(store.rules, store.state([]), [])


def test_time_comes_back_from_the_year_9999() -> None:
    store = LabelStore(RULES)
    _ticks(store, NOW)
    _ticks(store, FAR)
    assert store.clock.now == FAR + IN_A_ROW // 2
    store.wait("a", {"f": 1.0}, FAR)
    _ticks(store, NOW + 100, IN_A_ROW - 1)
    assert store.clock.now == FAR + IN_A_ROW // 2
    store = _again(store)
    store.tick(FAR)  # the row is broken
    _ticks(store, NOW + 100)
    assert store.clock.now == NOW + 100 + IN_A_ROW // 2
    store.wait("b", {"f": 1.0}, NOW + 200)
    assert store.counts["expired"] == 0
    store = _again(store)
    for at in range(NOW, NOW + RULES.wait_ms + 1_000, 100):
        store.tick(at)
    assert store.counts["expired"] == 2  # both as long as they should wait, from then on
    assert not store.waiting


def test_going_back_and_returning_takes_no_time() -> None:
    """A burst from 1970 does not let everything expire that waits."""
    store = LabelStore(RULES)
    _ticks(store, NOW)
    store.wait("a", {"f": 1.0}, NOW)
    store.tick(NOW + 1_000)
    _ticks(store, 5_000)
    assert store.clock.now == 5_000 + IN_A_ROW // 2
    store = _again(store)
    store.wait("b", {"f": 1.0}, 5_000)
    _ticks(store, NOW + 1_000)
    assert list(store.waiting) == ["a", "b"]
    assert store.state([]) == _again(store).state([])
    store.tick(NOW + 25 + RULES.wait_ms)
    assert list(store.waiting) == ["a", "b"]
    store.tick(NOW + 26 + RULES.wait_ms)
    assert list(store.waiting) == ["b"]


def test_a_pause_after_time_has_come_back_is_a_pause() -> None:
    store = LabelStore(RULES)
    _ticks(store, FAR)
    _ticks(store, NOW)
    for i in range(IN_A_ROW):
        store.tick(NOW + i * RULES.clock_step_ms // 10)
    store.wait("a", {"f": 1.0}, NOW)
    _ticks(store, NOW + 86_400_000)
    assert store.counts["expired"] == 1


def test_a_clock_without_anything_behind_is_told_as_ever() -> None:
    clock = StreamClock(60_000)
    for i in range(IN_A_ROW):
        clock.move(NOW + i)
    clock.move(FAR)
    told = clock.state()
    assert told == [NOW + IN_A_ROW // 2, [FAR]]
    again = StreamClock(60_000)
    again.restore(told)
    assert again.state() == told
    for damaged in ([None, [], [1], None], [NOW, [], [1] * IN_A_ROW, None], [NOW, [], [], [1]]):
        with pytest.raises(ValueError, match=r"behind|in a row|unpack"):
            again.restore(damaged)


def test_the_settings_of_late_labels_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    text = '[pipeline]\nname = "p"\n[kafka]\nbootstrap_servers = "h:1"\n'
    path.write_text(text, encoding="utf-8")
    assert load_pipeline(path).config.labels is None
    path.write_text(text + '[topics]\nlabels = "l"\n', encoding="utf-8")
    labels = load_pipeline(path).config.labels
    assert labels is not None
    assert labels.expire_after_seconds == 86_400
    wrong = '[labels]\nexpire_after_seconds = 0\nmax_event = 3\n[topics]\nlabels = "p.events"\n'
    path.write_text(text + wrong, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_pipeline(path)
    told = str(caught.value)
    assert "labels.expire_after_seconds = 0" in told
    assert "labels.max_event" in told
    assert "did you mean max_events?" in told
    assert "topics.labels = 'p.events'" in told
    path.write_text('[pipeline]\nname = "p"\n[source]\ndataset = "digits"\n[labels]\n', "utf-8")
    with pytest.raises(ConfigError, match=r"add \[kafka\] bootstrap_servers"):
        load_pipeline(path)


def counted(store: LabelStore) -> int:
    """What a store holds, id by id."""
    ids = sum(kept_bytes(i) for kept in (store.waiting, store.early, store.known) for i in kept)
    entries = [*store.waiting.values(), *store.early.values()]
    return ids + sum(entry.size for entry in entries)


def test_ids_count_wherever_they_are_held() -> None:
    rules = LateRules(wait_ms=10**9, max_bytes=100_000, max_early=10**6, max_events=10**6)
    store = LabelStore(rules)
    place = ("t", 0, 0)
    for i in range(3_000):
        store.tick(NOW + i)
        if i % 3 == 0:
            store.wait(f"w{i}" + "x" * 250, [1.0], NOW + i)
        elif i % 3 == 1:
            store.hold(f"e{i}" + "y" * 250, "l" * 100, NOW + i, place)
        else:
            store.brought(f"b{i}" + "z" * 250)
        assert store.bytes == counted(store) <= rules.max_bytes
        assert i < 2_000 or min(map(len, (store.waiting, store.early, store.known))) > 30
    again = LabelStore.from_state(rules, {**store.state([]), "models": []}, [])
    assert again.bytes == store.bytes
    assert again.state([]) == store.state([])
    for counts, lost in (("expired", store.waiting), ("unmatched", store.early)):
        assert store.counts[counts] == 1_000 - len(lost), "each is accounted for"


def test_a_store_beyond_lowered_bytes_keeps_to_them_with_the_next_record() -> None:
    store = LabelStore(LateRules())
    for i in range(400):
        store.hold(f"early {i}", "y", NOW, ("t", 0, i))
        store.brought(f"known {i}")
    lowered = LabelStore.from_state(LateRules(max_bytes=65_536), store.state([]), [])
    assert lowered.bytes > 65_536
    lowered.wait("w", [1.0], NOW)
    assert lowered.bytes == counted(lowered) <= 65_536
    assert "w" in lowered.waiting


def test_a_guess_is_written_once_and_guesses_of_before_are_read() -> None:
    store = LabelStore(LateRules())
    said: list[Any] = ["class " * 40, 1, True, 1.0, None]
    for i in range(50):
        entry = store.wait(i, [1.0], NOW)
        assert entry is not None
        entry.guesses += [said[i % 5], said[0]]
    told = store.state(["main", "other"])
    assert len(str(told)) < 10_000
    again = LabelStore.from_state(LateRules(), told, ["other", "main"])
    for i, entry in again.waiting.items():
        assert [(type(g), g) for g in entry.guesses] == [
            (str, said[0]),
            (type(said[i % 5]), said[i % 5]),
        ]
    assert again.state(["other", "main"])["said"] == ["class " * 40, 1, True, 1.0, None]
    for one in told["waiting"]:
        one[4] = [told["said"][number] for number in one[4]]
    del told["said"]
    before = LabelStore.from_state(LateRules(), told, ["main", "other"])
    assert [e.guesses for e in before.waiting.values()] == [
        e.guesses for e in store.waiting.values()
    ]
    for wrong in (-1, 7, "a", True, None):
        damaged = store.state(["main", "other"])
        damaged["waiting"][0][4] = [wrong, 0]
        with pytest.raises(SnapshotError, match="label store"):
            LabelStore.from_state(LateRules(), damaged, ["main", "other"])
