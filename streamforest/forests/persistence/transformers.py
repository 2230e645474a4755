"""River transformers that can stand before a forest in a snapshot.

An allow-list: each entry says which attributes make up the state and what they are. What is not on it
is refused by name when saving, so that nobody finds out when loading.
"""

from __future__ import annotations

import json
import math
import numbers
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, NamedTuple

from river.base import Transformer

from streamforest.errors import SnapshotError
from streamforest.forests.core.values import name_order

Pairs = list[list[Any]]
_ROUNDING = 1e-9  # of a squared mean: more than rounding takes a variance below zero
_TYPES: dict[str, type] = {
    kind.__name__: kind for kind in (str, int, float, bool, numbers.Number, numbers.Real)
}
_TYPE_NAMES: dict[Any, str] = {kind: name for name, kind in _TYPES.items()}
_LISTS: dict[str, type] = {"stop_words": str, "ngram_range": int}
"""Parameters that are no scalars, and of what they are made."""
_DEEPEST = 8  # unions of pipelines of unions …
_EVENT: dict[Hashable, Any] = {"a": 1.5, "b": -2.5}


class _Codec(NamedTuple):
    """How a transformer's state becomes plain data and comes back."""

    kind: type[Transformer]
    dump: Callable[[Any], dict[str, Any]]
    restore: Callable[[Any, dict[str, Any]], None]
    positional: str | None = None  # an attribute that holds *args of the constructor
    event: Callable[[Any], Any] = lambda step: _EVENT  # one that it can take


def _is_name(name: Any) -> bool:
    """Whether a name can be saved: a str, an int, or a tuple of str (an n-gram)."""
    if type(name) is tuple:
        return bool(name) and all(type(part) is str for part in name)
    return type(name) in (str, int)


def _pairs(mapping: dict[Any, float]) -> Pairs:
    """A mapping in a fixed order; JSON objects would turn every key into a string."""
    for name in mapping:
        if not _is_name(name):
            raise SnapshotError(f"feature name {name!r} cannot be saved: use a str or an int")
    return [[name, float(mapping[name])] for name in sorted(mapping, key=name_order)]


def _numbers(pairs: Any, whole: bool = False) -> dict[Any, Any]:
    out: dict[Any, Any] = {}
    for name, value in pairs:
        name = tuple(name) if type(name) is list else name
        fits = _is_name(name) and type(value) is float and math.isfinite(value)
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


def _dump_one_hot(step: Any) -> dict[str, Any]:
    values = {}
    for name in sorted(step.values, key=name_order):
        found = sorted(step.values[name], key=name_order)
        if not _is_name(name) or not all(type(v) in (str, int, float, bool) for v in found):
            raise SnapshotError(f"the values of {name!r} cannot be saved: use strings or numbers")
        values[name] = found
    return {"values": [[name, found] for name, found in values.items()]}


def _restore_one_hot(step: Any, data: dict[str, Any]) -> None:
    for name, values in data["values"]:
        known = set(values)
        plain = all(type(value) in (str, int, float, bool) for value in values)
        if name in step.values or not _is_name(name) or not plain or len(known) != len(values):
            raise SnapshotError(f"the snapshot is damaged: the values of {name!r}")
        step.values[name] = known
        if not step.drop_zeros:
            step._zero_dict.update({f"{name}_{value}": 0 for value in values})


def _dump_tfidf(step: Any) -> dict[str, Any]:
    return {"n": step.n, "dfs": _pairs(step.dfs)}


def _restore_tfidf(step: Any, data: dict[str, Any]) -> None:
    step.dfs = Counter(_numbers(data["dfs"], whole=True))
    step.n = data["n"]
    if type(step.n) is not int or not all(0 <= count <= step.n for count in step.dfs.values()):
        raise SnapshotError("the snapshot is damaged: documents counted")


def _text_event(step: Any) -> Any:
    return "some words" if step.on is None else {step.on: "some words"}


def _selected_event(step: Any) -> Any:
    return dict.fromkeys(step.keys, 1.5)


def _nothing(step: Any) -> dict[str, Any]:
    return {}


def _made(codec: _Codec, params: Any) -> Any:
    if codec.positional == "types":
        return codec.kind(*(_TYPES[name] for name in params))
    if codec.positional:
        return codec.kind(*params)
    return codec.kind(**{name: _as_given(name, value) for name, value in params.items()})


def _keep(step: Any, data: dict[str, Any]) -> None:
    if data:
        raise SnapshotError(f"the snapshot is damaged: {type(step).__name__} has no state")


@cache
def _codecs() -> dict[str, _Codec]:
    """The allow-list. Importing River's preprocessing takes a second: only pipelines pay for it."""
    from river import compose, feature_extraction, preprocessing

    return {
        codec.kind.__name__: codec
        for codec in (
            _Codec(preprocessing.StandardScaler, _dump_standard, _restore_standard),
            _Codec(preprocessing.MinMaxScaler, _dump_min_max, _restore_min_max),
            _Codec(preprocessing.MaxAbsScaler, _dump_max_abs, _restore_max_abs),
            _Codec(preprocessing.Normalizer, _nothing, _keep),
            _Codec(compose.Select, _nothing, _keep, positional="keys", event=_selected_event),
            _Codec(compose.Discard, _nothing, _keep, positional="keys"),
            _Codec(compose.SelectType, _nothing, _keep, positional="types"),
            _Codec(preprocessing.OneHotEncoder, _dump_one_hot, _restore_one_hot),
            _Codec(preprocessing.FeatureHasher, _nothing, _keep),
            _Codec(feature_extraction.BagOfWords, _nothing, _keep, event=_text_event),
            _Codec(feature_extraction.TFIDF, _dump_tfidf, _restore_tfidf, event=_text_event),
        )
    }


def described(step: Any) -> str:
    """Class and parameters of a transformer in one form only."""
    return json.dumps(_without_state(dump(step)), sort_keys=True)


def _without_state(data: dict[str, Any]) -> Any:
    inner = data.get("steps")
    if inner is not None:
        return [data["class"], [[name, _without_state(step)] for name, step in inner]]
    return [data["class"], data["params"]]


def _members(step: Any) -> dict[str, Any] | None:
    """The transformers that a pipeline or a union is made of; None if it is neither."""
    from river import compose

    if type(step) is compose.Pipeline:
        return dict(step.steps)
    return dict(step.transformers) if type(step) is compose.TransformerUnion else None


def dump(step: Any, depth: int = 0) -> dict[str, Any]:
    """Class, parameters and state of a transformer, as plain data."""
    members = _members(step)
    if members is not None:
        if depth >= _DEEPEST:
            raise SnapshotError(f"steps within steps, {_DEEPEST} deep, cannot be saved")
        steps = [[str(name), dump(inner, depth + 1)] for name, inner in members.items()]
        return {"class": type(step).__name__, "steps": steps}
    codec = _codecs().get(type(step).__name__)
    if codec is None or type(step) is not codec.kind:
        raise SnapshotError(
            f"the pipeline step {type(step).__name__} cannot be saved: "
            f"its state is not plain data known here (known: {', '.join(sorted(_codecs()))}, and unions "
            "and pipelines of them)"
        )
    if codec.positional:
        params: Any = list(getattr(step, codec.positional))
        if codec.positional == "types":
            params = [_TYPE_NAMES.get(kind, kind) for kind in params]
        _check_parameters(codec, params)
        params.sort(key=lambda key: (type(key).__name__, key))
    else:
        params = {name: _as_plain(value) for name, value in step._get_params().items()}
        _check_parameters(codec, params)
    return {"class": type(step).__name__, "params": params, "state": codec.dump(step)}


def _check_parameters(codec: _Codec, params: Any) -> None:
    """Refuse parameters that are not plain data, or make a step keep a state that is not."""
    kind = codec.kind.__name__
    if codec.positional:
        if not isinstance(params, list) or not all(type(key) in (str, int) for key in params):
            raise SnapshotError(f"{kind} with keys other than str or int")
        if codec.positional == "types" and not set(params) <= set(_TYPES):
            raise SnapshotError(f"{kind} with types other than {', '.join(_TYPES)}")
        return
    if params.get("window_size") is not None:
        raise SnapshotError(f"{kind} with a window_size cannot be saved")
    if "seed" in params and params["seed"] is None:
        raise SnapshotError(f"{kind} without a seed cannot be saved: give it one")
    for name, value in params.items():
        if name in _LISTS and type(value) is list:
            fits = all(type(item) is _LISTS[name] for item in value)
        else:
            fits = value is None or type(value) in (bool, int, float, str)
        if not fits:
            raise SnapshotError(f"{kind}.{name}={value!r} cannot be saved")


def _as_plain(value: Any) -> Any:
    """A parameter as JSON has it."""
    if type(value) is tuple:
        return list(value)
    return sorted(value, key=str) if type(value) in (set, frozenset) else value


def _as_given(name: str, value: Any) -> Any:
    if type(value) is not list:
        return value
    return tuple(value) if name == "ngram_range" else set(value)


def restore(meta: dict[str, Any], depth: int = 0) -> Any:
    """The transformer that `dump` described."""
    if meta["class"] in ("Pipeline", "TransformerUnion"):
        from river import compose

        if depth >= _DEEPEST or len({name for name, _ in meta["steps"]}) != len(meta["steps"]):
            raise SnapshotError("the snapshot is damaged: steps within steps")
        steps = [(str(name), restore(inner, depth + 1)) for name, inner in meta["steps"]]
        if meta["class"] == "Pipeline":
            return compose.Pipeline(*steps)
        union = compose.TransformerUnion()
        union.transformers.update(steps)  # its constructor would make copies
        return union
    codec = _codecs().get(meta["class"])
    if codec is None:
        raise SnapshotError(f"the snapshot has an unknown step {meta['class']!r}")
    params = meta["params"]
    try:
        _check_parameters(codec, params)
        step, other = (_made(codec, params) for _ in range(2))
        other.learn_one(
            codec.event(other)
        )  # parameters that fail, fail here, not at the first event
        other.transform_one(codec.event(other))
        codec.restore(step, meta["state"])
    except SnapshotError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise SnapshotError(f"the snapshot is damaged: {meta['class']}: {error}") from error
    return step
