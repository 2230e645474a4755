"""Generated streams for the example pipelines: short requests, and machines that break.

They look like what people bring: words instead of pixels, sensors with units, classes that nobody knew of
at the start. No benchmark runs them, and no setting was chosen on them.
"""

from __future__ import annotations

import numpy as np

from streamforest.datasets.stream import Stream
from streamforest.errors import DatasetError

_FILL = {
    "city": ["Rome", "Oslo", "Lima", "Cairo", "Delhi", "Quito", "Turin", "Ghent", "Porto", "Kyoto"],
    "time": ["today", "tomorrow", "tonight", "monday", "friday", "noon", "eight", "midnight"],
    "money": ["10", "25", "40", "100", "250", "300", "1000"],
    "who": ["anna", "ben", "carla", "dario", "emma", "my-mother", "my-landlord", "the-garage"],
    "thing": ["card", "phone", "account", "password", "order", "parcel", "subscription"],
    "please": ["please", "can you", "i need to", "i want to", "could you", "how do i", "help me"],
}
_INTENTS: dict[str, tuple[str, ...]] = {
    "transfer": (
        "{please} send {money} euros to {who}",
        "{please} transfer {money} to {who} {time}",
        "move {money} euros to {who}",
    ),
    "balance": (
        "{please} see my balance",
        "how much money is on my account",
        "what is my balance {time}",
    ),
    "weather": (
        "will it rain in {city} {time}",
        "what is the weather in {city}",
        "is it cold in {city} {time}",
    ),
    "book flight": (
        "{please} book a flight to {city}",
        "find me a plane to {city} {time}",
        "flights from {city} to {city} {time}",
    ),
    "lost card": (
        "{please} block my card",
        "my card was stolen in {city}",
        "i lost my card {time} {please} freeze it",
    ),
    "opening hours": (
        "when do you open {time}",
        "are you open {time} in {city}",
        "until when is the branch in {city} open",
    ),
    "reset password": (
        "{please} reset my password",
        "i forgot the password of my {thing}",
        "my login does not work {time}",
    ),
    "track parcel": (
        "where is my parcel",
        "when does my parcel arrive {time}",
        "{please} track my order to {city}",
    ),
    "cancel": (
        "{please} cancel my {thing}",
        "stop my {thing} from {time} on",
        "end my {thing} {time}",
    ),
    "complaint": (
        "this is the third time my {thing} is wrong",
        "i am angry about my {thing}",
        "nobody answers in {city} about my {thing}",
    ),
}


def intents(n: int = 3_000, every: int = 250, seed: int = 0) -> Stream:
    """Short requests with the intent behind each; a new intent comes every so many events.

    >>> x, y = next(iter(intents(3).dicts()))
    >>> y, x["text"]
    ('balance', 'how much money is on my account')
    """
    rng = np.random.default_rng(_checked("intents", n, seed))
    names = list(_INTENTS)
    y, rows = [], []
    for i in range(n):
        name = names[int(rng.integers(0, min(len(names), 2 + i // every)))]
        text = str(rng.choice(np.array(_INTENTS[name])))
        while "{" in text:
            before, rest = text.split("{", 1)
            slot, after = rest.split("}", 1)
            text = f"{before}{rng.choice(np.array(_FILL[slot]))}{after}"
        y.append(name)
        rows.append(text)
    return Stream("intents", np.zeros((n, 0)), np.array(y), (), texts=np.array(rows), seed=seed)


_SENSORS = ("temperature", "vibration", "pressure", "current", "speed", "hours_since_service")
_NORMAL = np.array([62.0, 2.1, 5.2, 11.0, 1_480.0, 0.0])
_NOISE = np.array([3.0, 0.3, 0.15, 0.6, 12.0, 0.0])
_FAULTS: dict[str, tuple[float, ...]] = {
    "ok": (0.0, 0.0, 0.0, 0.0, 0.0),
    "bearing wear": (8.0, 2.2, 0.0, 0.9, -10.0),
    "overheating": (24.0, 0.2, 0.0, 1.8, 0.0),
    "leak": (0.0, 0.1, -1.1, 0.3, 0.0),
    "misalignment": (3.0, 1.4, 0.0, 2.4, -35.0),
    "blocked filter": (5.0, 0.0, 0.9, 1.6, -15.0),
}


def machine_faults(n: int = 4_000, every: int = 600, seed: int = 0) -> Stream:
    """Readings of 40 machines with what a technician found; a new kind of fault every so many events.

    Machines differ a little from each other, a sensor drifts with the hours since the last service, and
    one reading in fifty lacks a value.

    >>> s = machine_faults(1_000, seed=1)
    >>> s.features[:3], s.classes
    (('temperature', 'vibration', 'pressure'), ['ok', 'bearing wear', 'overheating'])
    """
    rng = np.random.default_rng(_checked("machine-faults", n, seed))
    names = list(_FAULTS)
    own = rng.normal(size=(40, 6)) * _NOISE
    known = np.minimum(len(names), 2 + np.arange(n) // every)
    fault = np.where(rng.random(n) < 0.5, 0, (rng.random(n) * known).astype(np.int64))
    machine = rng.integers(0, len(own), n)
    X = _NORMAL + own[machine] + rng.normal(size=(n, 6)) * _NOISE
    X[:, 5] = rng.uniform(0, 2_000, n).round()
    X[:, 1] += X[:, 5] / 4_000
    X[:, :5] += np.array(list(_FAULTS.values()))[fault] * rng.uniform(0.8, 1.2, (n, 1))
    X[rng.random(X.shape) < 0.02 / 6] = np.nan
    return Stream("machine-faults", X.round(3), np.array(names)[fault], _SENSORS, seed=seed)


def _checked(name: str, n: int, seed: int) -> int:
    if n < 1:
        raise DatasetError(f"{name}: n is {n}; ask for at least 1 row")
    return seed
