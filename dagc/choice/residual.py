"""The pre-trained learner: predicts the error of the model of data volumes from the terms that the model computes.

Boosted regression trees on the residual log(measured) - log(model), within a kernel and size, since only the order of
its settings matters. They were trained on families of kernels (`benchmarks/corpus`, split `fit`) by `python -m
benchmarks.tune.learn`, which writes `launch_learner.json` beside this file. The file is data: it is validated when it
is read, and contains its provenance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dagc.base.python import Array
from dagc.choice.surface import Covariance
from dagc.choice.terms import TERMS
from dagc.choice.types import Case, Site
from dagc.ir.choice import Choice, own_name
from dagc.ir.program import Value

FILE = Path(__file__).with_name("launch_learner.json")
FORMAT = 3
MOST_NODES, MOST_BYTES = 200_000, 1 << 20

PARTS = tuple(t for t in TERMS if t.endswith("_s"))  # seconds of each term of the model
RATIOS = (
    "waves", "occupancy", "warps_sm", "active_lanes", "load_sectors", "store_sectors", "store_bytes", "reuse", "held",
    "resident", "registers",
)  # fmt: skip
AS_THEY_ARE = (
    "tail", "occupancy", "active_lanes", "uncertainty", "log2_bx", "log2_by", "log2_bz", "log2_threads", "log2_blocks",
    "spills", "tunable_1", "tunable_2", "tunable_3", "tunable_4",
)  # fmt: skip
LOGS = ("waves", "warps_sm", "load_sectors", "store_sectors", "store_bytes", "reuse", "held", "registers", "shared")
FEATURES = (
    "model", "seconds", *(f"{t} over mean" for t in PARTS), *(f"{t} of all" for t in PARTS),
    *(f"{t} over mean" for t in RATIOS), *AS_THEY_ARE, *(f"log {t}" for t in LOGS),
)  # fmt: skip
_PLACE = {name: i for i, name in enumerate(TERMS)}


def features(terms: Array) -> Array:
    """FEATURES of the settings of a kernel at a size, shape (settings, len(FEATURES)); `terms` are those of
    `dagc.choice.terms.LaunchTerms.at`. Unknown values are NaN."""
    n = len(terms)
    with np.errstate(all="ignore"):
        model = _finite(np.log(terms[:, 0]))
        parts = terms[:, [_PLACE[t] for t in PARTS]]
        whole = _mean(np.nansum(parts, axis=1)) or math.nan
        columns = [model - _mean(model), np.full(n, _mean(model))]
        columns += [(x - _mean(x)) / whole for x in parts.T]
        columns += [np.full(n, _mean(x) / whole) for x in parts.T]
        for name in RATIOS:
            log = np.log(terms[:, _PLACE[name]] + 1e-3)
            columns.append(log - _mean(log))
        columns += [terms[:, _PLACE[name]] for name in AS_THEY_ARE]
        columns += [np.log(terms[:, _PLACE[name]] + 1e-3) for name in LOGS]
    return _finite(np.array(columns).T)


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, np.nan)


def _mean(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else math.nan


def modelled(terms: Array) -> Array:
    """The model's log(seconds), shape (settings,): a setting without a prediction has that of the slowest one; without
    any prediction, 0."""
    with np.errstate(all="ignore"):
        logs = _finite(np.log(terms[:, 0]))
    known = logs[np.isfinite(logs)]
    return np.where(np.isfinite(logs), logs, known.max() if len(known) else 0.0)


def coordinates(site: Site, choices: Sequence[Choice]) -> Array:
    """Coordinates of the settings in doublings, shape (settings, 3 + tunables beside the dimensions of the block)."""
    own = [own_name(d.name) for d in site.open if not d.axis]
    columns = {own_name(d.name): "xyz".index(d.axis) for d in site.open if d.axis}
    columns |= {n: 3 + i for i, n in enumerate(own)}
    out = np.zeros((len(choices), 3 + len(own)))
    for i, choice in enumerate(choices):
        for name, value in choice.own.items():
            if name in columns and not isinstance(value, str):
                out[i, columns[name]] = math.log2(1 + abs(value)) if columns[name] > 2 else math.log2(max(1, value))
    return out


# The logarithm that the predicted gain of a form is too large by, with one block; that of `coarsen` for each doubling.
# Fitted to 76 kernels of benchmarks/results/2026-11-29-h200-judge, each family left out in turn: `wide` 2 and 4 by
# -0.05 to -0.08 and -0.02 to 0.03, `coarsen` by 0.05 to 0.06. Of a form without an entry little is known.
FORM_BIAS: dict[tuple[str, Value], float] = {("form.wide", 2): -0.06, ("form.wide", 4): 0, ("form.freedom", 2): 0}
COARSEN_BIAS, UNKNOWN_BIAS = 0.06, 0.1
# Forms that leave fewer warps in all to a multiprocessor: latencies are no longer hidden. The medians are 0.1 with 16
# to 32 warps there, 0.4 to 1.4 with fewer; for each halving:
FEW_WARPS, FEW_BIAS = 32, 0.4
JOINING = tuple(f"form.{name}" for name in ("wide", "tile", "columns", "coarsen"))  # fewer threads do the work


def form_bias(terms: Array, choices: Sequence[Choice]) -> Array:
    """What to add to the predicted log(seconds) of settings for their forms, shape (settings,)."""
    warps = terms[:, _PLACE["warps_sm"]]
    with np.errstate(all="ignore"):
        few = np.nan_to_num(np.maximum(np.log2(FEW_WARPS / warps), 0.0), nan=0.0, posinf=0.0)
    joining = np.array([any(own_name(name) in JOINING for name in choice.formed) for choice in choices], dtype=bool)
    own = [sum(_bias(own_name(name), choice[name]) for name in choice.formed) for choice in choices]
    return np.asarray(np.array(own, dtype=float) + FEW_BIAS * few * joining)


def _bias(form: str, value: Value) -> float:
    if form == "form.coarsen" and isinstance(value, int):
        return COARSEN_BIAS * math.log2(value)
    return FORM_BIAS.get((form, value), UNKNOWN_BIAS)


def size_coordinates(cases: Sequence[Case]) -> Array:
    """Coordinates of the sizes in doublings, shape (sizes, parameters). Named inputs are 3 doublings apart."""
    names = list(dict.fromkeys(n for case in cases for n, _ in case.params))
    texts = list(dict.fromkeys(v for case in cases for _, v in case.params if isinstance(v, str)))
    out = np.zeros((len(cases), max(1, len(names))))
    for i, case in enumerate(cases):
        for name, value in case.params:
            out[i, names.index(name)] = (
                3 * texts.index(value) if isinstance(value, str) else math.log2(max(1, abs(value)))
            )
    return out


@dataclass(frozen=True, slots=True)
class Trees:
    """A sum of regression trees. Row t of each array is a tree; `left` and `right` are nodes of it, 0 in a leaf; an
    unknown value goes to the left if `unknown_left` is set."""

    feature: np.ndarray[Any, Any]
    threshold: np.ndarray[Any, Any]
    left: np.ndarray[Any, Any]
    right: np.ndarray[Any, Any]
    value: np.ndarray[Any, Any]
    unknown_left: np.ndarray[Any, Any]

    def predict(self, rows: Array) -> Array:
        """The sum of the trees, shape (rows,)."""
        n, trees = len(rows), np.arange(len(self.feature))[:, None]
        at = np.zeros((len(self.feature), n), dtype=np.int64)
        while True:
            inner = self.left[trees, at] > 0
            if not inner.any():
                return np.asarray(self.value[trees, at].sum(axis=0))
            x = rows[np.arange(n)[None, :], self.feature[trees, at]]
            unknown = np.isnan(x)
            left = np.where(unknown, self.unknown_left[trees, at], x <= self.threshold[trees, at])
            at = np.where(inner, np.where(left, self.left[trees, at], self.right[trees, at]), at)


@dataclass(frozen=True, slots=True)
class Learner:
    """`trees`: the mean residual, None if none was learned. `kernel`: covariance of the remaining error; `deviation`:
    its standard deviation if the model can read the kernel, `blind` if not. `archs`: architectures of the GPUs that
    were measured. `source`: provenance, to be printed."""

    trees: Trees | None
    kernel: Covariance
    deviation: float
    blind: float
    archs: tuple[str, ...]
    source: str

    def predict(self, terms: Array, choices: Sequence[Choice]) -> tuple[Array, Array]:
        """(mean, standard deviation) of log(seconds) of the settings at a size, up to a factor of the size."""
        base = modelled(terms) + form_bias(terms, choices)
        if self.trees is not None and len(terms):
            missed = self.trees.predict(features(terms))
            base = base + missed - missed.mean()
        known = np.isfinite(terms[:, 0])
        return base, np.where(known, self.deviation, self.blind if not known.any() else self.deviation)


# Without a usable file: the model alone, with the error that it has on most kernels.
_USUAL = Covariance((2.6, 7.8, 6.2, 6.0, 2.3), 7.7, 0.16, 0.82, 0.02, 0.4, 0.5, 0.004)
UNTRAINED = Learner(None, _USUAL, 0.2, 0.5, (), "untrained")


@lru_cache(maxsize=4)
def load_learner(path: Path) -> Learner:
    """The learner of a file, such as FILE. Raises ValueError with the fault, OSError if it cannot be read."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path.name} is larger than {MOST_BYTES >> 10} KiB")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return _learner(data)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError, ValueError) as error:
        raise ValueError(f"{path.name} is not a learner of launch settings: {error}") from None


def _learner(data: Mapping[str, Any]) -> Learner:
    if data["format"] != FORMAT or tuple(data["features"]) != FEATURES:
        raise ValueError("it was written for other features of kernels; make it again with benchmarks/tune/learn.py")
    within, beyond, y, z, other = map(_positive, data["kernel"]["lengths"])
    scalars = ("size_length", "shared", "similar", "alone", "strength", "terms", "noise")
    kernel = Covariance((within, beyond, y, z, other), *(_positive(data["kernel"][name]) for name in scalars))
    archs = tuple(str(a) for a in data["archs"])
    return Learner(
        _trees(data["trees"]) if data["trees"] else None, kernel, _positive(data["deviation"]),
        _positive(data["blind"]), archs, str(data["source"]),
    )  # fmt: skip


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < 1e6:
        raise ValueError(f"{value!r} is out of range")
    return number


def _trees(trees: Sequence[Mapping[str, Sequence[float]]]) -> Trees:
    """Trees of a file. Every child is a later node of its tree, so that a walk terminates."""
    most = max(len(tree["value"]) for tree in trees)
    if most * len(trees) > MOST_NODES:
        raise ValueError("too many nodes")
    kinds = {"feature": int, "threshold": float, "left": int, "right": int, "value": float, "unknown_left": bool}
    arrays: dict[str, Any] = {name: np.zeros((len(trees), most), dtype=kind) for name, kind in kinds.items()}
    for t, tree in enumerate(trees):
        for name, into in arrays.items():
            into[t, : len(tree["value"])] = tree[name]
    nodes = np.arange(most)[None, :]
    inner = arrays["left"] > 0
    good = (arrays["feature"] >= 0) & (arrays["feature"] < len(FEATURES)) & np.isfinite(arrays["value"])
    for side in ("left", "right"):
        good &= ~inner | ((arrays[side] > nodes) & (arrays[side] < most))
    if not good.all() or not np.isfinite(arrays["threshold"]).all():
        raise ValueError("a tree is broken")
    return Trees(**arrays)
