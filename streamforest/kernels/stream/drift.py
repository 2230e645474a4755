"""Drift: what a tree knows about its own errors, when it is challenged and when it gives way.

Here, and in the forest's weights and mix, every label counts, structure or estimation: these decide
which trees are believed, never where a tree splits or what its leaf answers.
"""

from __future__ import annotations

import math

from streamforest.kernels.core import rng
from streamforest.kernels.core.compiling import kernel, routine
from streamforest.kernels.stream.histogram import count
from streamforest.kernels.stream.layout import (
    HISTORY,
    Record,
    TreeArrays,
    is_estimation,
    new_leaf,
    push,
)

_LOSS_MEMORY = 0.995  # of the choice between a tree's two experts
ACCURACY_RATE = 0.01  # of the accuracy that vote weights are made of
_LOOK_EVERY = 8  # events between two looks for an alarm
_SHORTEST, _LONGEST = 16, 1024  # recent windows of the alarm
_PATIENCE = 1000  # events before the first challenge, and of the fading of challenges after a swap
_FEWEST_ROWS = 64  # a challenger at random is grown from


@kernel
def better_expert(voter: Record) -> int:
    """The expert of a tree with fewer recent errors: 0 counts, 1 neighbours."""
    return 1 if voter.loss_neighbours < voter.loss_counts else 0


@kernel
def vote_weight(voter: Record, power: float) -> float:
    """What a tree's vote counts: the odds of its own accuracy, as of now, to a power.

    The power is the forest's and changes between epochs only; the accuracy is the tree's own affair.
    (With weights frozen for an epoch of 64 events electricity falls from .895 to .882.)
    """
    if power == 0.0:
        return 1.0
    return math.pow((voter.accuracy + 0.01) / (1.01 - voter.accuracy), power)


@kernel
def judge(g: TreeArrays, t: int, wrong_counts: int, wrong_near: int) -> int:
    """Note what the tree got wrong on the current row; returns the error of its better expert."""
    voter = g.voter[t]
    wrong = wrong_near if better_expert(voter) else wrong_counts
    voter.loss_counts = _LOSS_MEMORY * voter.loss_counts + wrong_counts
    voter.loss_neighbours = _LOSS_MEMORY * voter.loss_neighbours + wrong_near
    voter.judged += 1
    rate = max(ACCURACY_RATE, 1.0 / (voter.judged + 1))
    voter.accuracy += rate * ((1 - wrong) - voter.accuracy)
    now = voter.n_seen
    g.errors[t, now % HISTORY] = g.errors[t, (now - 1) % HISTORY] + wrong
    return wrong


@kernel
def compare(voter: Record, wrong: int, challenger_wrong: int) -> None:
    """One more event on which tree and challenger both answered."""
    voter.raced += 1
    voter.challenger_errors += challenger_wrong
    if wrong > challenger_wrong:
        voter.only_tree_wrong += 1
    elif challenger_wrong > wrong:
        voter.only_challenger_wrong += 1


@kernel
def _new_race(voter: Record) -> None:
    voter.racing = 1
    voter.raced = 0
    voter.only_tree_wrong = 0
    voter.only_challenger_wrong = 0
    voter.challenger_errors = 0


@kernel
def _end_race(g: TreeArrays, t: int) -> None:
    voter = g.voter[t]
    _new_race(voter)
    voter.racing = 0
    tree_slot = g.tree_slot[2 * t + 1 - voter.active]
    tree_slot.n_nodes = 0
    tree_slot.generation = 0
    tree_slot.hist_top = 0
    tree_slot.cursor = 0
    tree_slot.building = 0


@kernel
def decide(g: TreeArrays, t: int, trial_events: int) -> None:
    """Swap when the challenger is ahead by a standard deviation; drop it when clearly behind.

    With a errors of the tree alone and b of the challenger alone, a − b has the variance a + b if they
    are equally good. After a swap the loser stays on as challenger, so a hasty swap is soon undone.
    """
    voter = g.voter[t]
    ahead = voter.only_tree_wrong - voter.only_challenger_wrong
    noise = math.sqrt(float(voter.only_tree_wrong + voter.only_challenger_wrong))
    if ahead > noise + 1.0:
        voter.active = 1 - voter.active
        voter.swaps += 1
        voter.swapped = voter.n_seen + 1
        voter.accuracy = 1.0 - voter.challenger_errors / voter.raced
        voter.judged = voter.raced
        _new_race(voter)
    elif ahead < -0.5 * noise - 1.0 or voter.raced > trial_events:
        _end_race(g, t)


@kernel
def _part(k: float, expected: float) -> float:
    return k * math.log(k / expected) if k > 0.0 else 0.0


@routine
def alarming(g: TreeArrays, t: int, alarm: float) -> int:
    """How many recent events show best that the tree has become worse; 0 if none do.

    The errors of the last w events are held against those of the 8·w (at least 400) before them, for
    w = 16, 32, … 1024, by the signed root of the likelihood ratio of the 2×2 table.
    """
    voter = g.voter[t]
    now = voter.n_seen
    best = 0.0
    rows = 0
    recent = _SHORTEST
    while recent <= _LONGEST:
        before = min(now + 1 - voter.swapped - recent, max(8 * recent, 400), HISTORY - 1 - recent)
        if before < max(recent, 50):
            break
        middle = g.errors[t, (now - recent) % HISTORY]
        k1 = float(g.errors[t, now % HISTORY] - middle)
        k0 = float(middle - g.errors[t, (now - recent - before) % HISTORY])
        if k1 * before > k0 * recent:
            p = (k0 + k1) / (recent + before)
            ratio = (
                _part(k1, recent * p)
                + _part(recent - k1, recent * (1.0 - p))
                + _part(k0, before * p)
                + _part(before - k0, before * (1.0 - p))
            )
            z = math.sqrt(max(0.0, 2.0 * ratio))
            if z > best:
                best = z
                rows = recent
        recent *= 2
    return rows if best > alarm else 0


@routine
def launch(g: TreeArrays, t: int, rows: int, p: Record) -> None:
    """A new challenger holds the last `rows` rows in its root; `grow` builds it, event by event."""
    voter = g.voter[t]
    now = voter.n_seen  # the row just learned
    voter.launches += 1
    _new_race(voter)
    s = 2 * t + 1 - voter.active
    tree_slot = g.tree_slot[s]
    tree_slot.generation = voter.launches
    tree_slot.n_nodes = 1
    tree_slot.hist_top = 0
    tree_slot.cursor = 0
    tree_slot.test = -1
    tree_slot.building = 1
    new_leaf(g, s, 0, -1)
    rows = min(rows, p.ring_rows, now + 1)
    for number in range(now + 1 - rows, now + 1):
        flag = is_estimation(voter.seed, tree_slot.generation, number, p.p_structure)
        push(g, s, 0, number, flag, p.slots, p.ring_rows)
        if flag:
            count(g, s, 0, g.labels[number % p.slots])
        else:
            g.stat[s, 0].n_structure += 1


@kernel
def challenge(g: TreeArrays, t: int, p: Record) -> int:
    """How many rows a challenger should be grown from now; 0 for none.

    At random, to find what no alarm shows, more often after a swap, when change is in the air; and on
    an alarm.
    """
    voter = g.voter[t]
    events = voter.n_seen + 1
    if events > _PATIENCE:
        rate = p.challenge_rate
        if voter.swapped > 0:
            rate += p.rechallenge_rate * math.exp(-float(events - voter.swapped) / _PATIENCE)
        start = rng.key(voter.seed, rng.RING_CHALLENGE, voter.n_seen)
        if rng.uniform(start, 0) < rate:
            max_rows = float(max(_FEWEST_ROWS, min(events, p.ring_rows, p.max_challenge_rows)))
            return int(_FEWEST_ROWS * math.pow(max_rows / _FEWEST_ROWS, rng.uniform(start, 1)))
    if p.alarm > 0.0 and (events + t) % _LOOK_EVERY == 0:
        return int(alarming(g, t, p.alarm))
    return 0
