"""River transformers that can stand before a forest in a snapshot.

An allow-list: each entry says which attributes make up the state and what they are. What is not on it
is refused by name when saving, so that nobody finds out when loading.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, NamedTuple

from river.base import Transformer

from streamforest.errors import SnapshotError

Pairs = list[list[Any]]
_ROUNDING = 1e-9  # of a squared mean: more than rounding takes a variance below zero
_EVENT: dict[Hashable, Any] = {"a": 1.5, "b": -2.5}


class _Codec(NamedTuple):
    """How a transformer's state becomes plain data and comes back."""

    kind: type[Transformer]
    dump: Callable[[Any], dict[str, Any]]
    restore: Callable[[Any, dict[str, Any]], None]
    positional: str | None = None  # an attribute that holds *args of the constructor


def _pairs(mapping: dict[Any, float]) -> Pairs:
    """A mapping in a fixed order; JSON objects would turn every key into a string."""
    for name in mapping:
        if type(name) not in (str, int):
            raise SnapshotError(f"feature name {name!r} cannot be saved: use a str or an int")
    return [
        [name, float(mapping[name])]
        for name in sorted(mapping, key=lambda name: (type(name).__name__, name))
    ]


def _numbers(pairs: Any, whole: bool = False) -> dict[Any, Any]:
    out: dict[Any, Any] = {}
    for name, value in pairs:
        fits = type(name) in (str, int) and type(value) is float and math.isfinite(value)
        if not fits or name in out or (whole and value != int(value)):
            raise SnapshotError(f"the snapshot is damaged: {name!r} has the value {value!r}")
        out[name] = int(value) if whole else value
    return out


def _dump_standard(step: Any) -> dict[str, Any]:
    # River's `learn_many` may round a variance below zero, and its root would be a complex number
    variances = {name: 0.0 if value < 0 else value for name, value in step.vars.items()}
    return {"counts": _pairs(step.counts), "means": _pairs(step.means), "vars": _pairs(variances)}


def _restore_standard(step: Any, data: dict[str, Any]) -> None:
    step.counts = Counter(_numbers(data["counts"], whole=True))
    step.means = defaultdict(float, _numbers(data["means"]))
    step.vars = defaultdict(float, _numbers(data["vars"]))
    for name, count in step.counts.items():
        if count < 0:
            raise SnapshotError(f"the snapshot is damaged: {name!r} was counted {count} times")
    for name, variance in step.vars.items():
        if variance < 0:
            if variance < -_ROUNDING * step.means.get(name, 0.0) ** 2:
                raise SnapshotError(f"the snapshot is damaged: {name!r} has variance {variance}")
            step.vars[name] = 0.0


def _extremes(mapping: dict[Any, Any], unmet: float = math.nan) -> Pairs:
    """Extremes by name. Asked about a feature it has not met, a scaler notes it as `unmet`."""
    values = {name: stat.get() for name, stat in mapping.items()}
    return _pairs({name: value for name, value in values.items() if value != unmet})


def _refill(make: Callable[[], Any], pairs: Any) -> Any:
    out: defaultdict[Any, Any] = defaultdict(make)
    for name, value in _numbers(pairs).items():
        out[name].update(value)
    return out


def _dump_min_max(step: Any) -> dict[str, Any]:
    return {"min": _extremes(step.min, math.inf), "max": _extremes(step.max, -math.inf)}


def _restore_min_max(step: Any, data: dict[str, Any]) -> None:
    from river import stats

    step.min = _refill(stats.Min, data["min"])
    step.max = _refill(stats.Max, data["max"])


def _dump_max_abs(step: Any) -> dict[str, Any]:
    return {"abs_max": _extremes(step.abs_max)}


def _restore_max_abs(step: Any, data: dict[str, Any]) -> None:
    from river import stats

    step.abs_max = _refill(stats.AbsMax, data["abs_max"])


def _nothing(step: Any) -> dict[str, Any]:
    return {}


def _keep(step: Any, data: dict[str, Any]) -> None:
    if data:
        raise SnapshotError(f"the snapshot is damaged: {type(step).__name__} has no state")


@cache
def _codecs() -> dict[str, _Codec]:
    """The allow-list. Importing River's preprocessing takes a second: only pipelines pay for it."""
    from river import compose, preprocessing

    return {
        codec.kind.__name__: codec
        for codec in (
            _Codec(preprocessing.StandardScaler, _dump_standard, _restore_standard),
            _Codec(preprocessing.MinMaxScaler, _dump_min_max, _restore_min_max),
            _Codec(preprocessing.MaxAbsScaler, _dump_max_abs, _restore_max_abs),
            _Codec(preprocessing.Normalizer, _nothing, _keep),
            _Codec(compose.Select, _nothing, _keep, positional="keys"),
            _Codec(compose.Discard, _nothing, _keep, positional="keys"),
        )
    }


def dump(step: Any) -> dict[str, Any]:
    """Class, parameters and state of a transformer, as plain data."""
    codec = _codecs().get(type(step).__name__)
    if codec is None or type(step) is not codec.kind:
        raise SnapshotError(
            f"the pipeline step {type(step).__name__} cannot be saved: "
            f"its state is not plain data known here (known: {', '.join(sorted(_codecs()))})"
        )
    if codec.positional:
        params: Any = list(getattr(step, codec.positional))
        _check_parameters(codec, params)
        params.sort(key=lambda key: (type(key).__name__, key))
    else:
        params = step._get_params()
        _check_parameters(codec, params)
    return {"class": type(step).__name__, "params": params, "state": codec.dump(step)}


def _check_parameters(codec: _Codec, params: Any) -> None:
    """Refuse parameters that are not plain data, or make a step keep a state that is not."""
    kind = codec.kind.__name__
    if codec.positional:
        if not isinstance(params, list) or not all(type(key) in (str, int) for key in params):
            raise SnapshotError(f"{kind} with keys other than str or int")
        return
    if params.get("window_size") is not None:
        raise SnapshotError(f"{kind} with a window_size cannot be saved")
    for name, value in params.items():
        if value is not None and type(value) not in (bool, int, float, str):
            raise SnapshotError(f"{kind}.{name}={value!r} cannot be saved")


def restore(meta: dict[str, Any]) -> Any:
    """The transformer that `dump` described."""
    codec = _codecs().get(meta["class"])
    if codec is None:
        raise SnapshotError(f"the snapshot has an unknown step {meta['class']!r}")
    params = meta["params"]
    try:
        _check_parameters(codec, params)
        step, other = (
            codec.kind(*params) if codec.positional else codec.kind(**params) for _ in range(2)
        )
        other.learn_one(_EVENT)  # parameters that fail, fail here and not at the first event
        other.transform_one(_EVENT)
        codec.restore(step, meta["state"])
    except SnapshotError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise SnapshotError(f"the snapshot is damaged: {meta['class']}: {error}") from error
    return step
