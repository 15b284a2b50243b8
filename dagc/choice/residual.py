"""The pre-trained learner: predicts the error of the model of data volumes from the terms that the model computes.

Boosted regression trees on the residual log(measured) - log(model), within a kernel and size, since only the order of
its settings matters. They were trained on families of kernels (`benchmarks/corpus`, split `fit`) by `python -m
benchmarks.tune.learn`, which writes `launch_learner.json` beside this file. The file is data: it is validated when it
is read, and contains its provenance.

The terms are quantities that the volume model computes for each setting, as columns of a table:

    terms = launch_terms(graph, site, settings, hardware, resources=of_each_setting)
    terms.at({"ni": 1024, "nj": 768})          # float64, (settings, len(TERMS)), times in seconds

The columns are the same for every site, so that a learner trained on one kernel applies to another. NaN marks unknown
values: for a kernel whose text cannot be read, only the launch and the compiled code are known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dagc.base.python import Array
from dagc.choice.feature import offered
from dagc.choice.legal import block_of, grid_of, op_of, text_and_grid
from dagc.choice.surface import Covariance
from dagc.choice.types import Case, Site
from dagc.cuda.accesses import Accesses
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.cuda.syntax import NotUnderstood
from dagc.ir import sym
from dagc.ir.choice import AS_WRITTEN, FORM, VARIANT, Choice, own_name
from dagc.ir.plan import AXES
from dagc.ir.program import Graph, KernelOp, Value
from dagc.ir.sym import Number
from dagc.perf.algebra import specialise
from dagc.perf.evaluate import PartialEvaluator
from dagc.perf.geometry import read_accesses, tunable
from dagc.perf.hardware import Hardware
from dagc.perf.program import ParameterKind, RationalProgram
from dagc.perf.volume import CALIBRATION, calibration_of, volume_program
from dagc.perf.volume import TERMS as OF_TIME

MOST_TUNABLES = 4
MOST_MODELS = 12  # with more combinations of an op's tunables, they stay parameters of one model
_OF_MODEL = {
    "waves": "waves", "tail": "f_tail", "occupancy": "f_occupancy", "warps_sm": "warps_sm",
    "active_lanes": "f_active_lanes", "load_sectors": "f_load_sectors", "store_sectors": "f_store_sectors",
    "store_bytes": "f_store_bytes", "reuse": "f_reuse", "held": "f_held", "uncertainty": "f_uncertainty",
}  # fmt: skip
_OF_LAUNCH = (*(f"log2_b{a}" for a in AXES), "log2_threads", "log2_blocks")
_OF_CODE = ("registers", "spills", "shared", "resident")
_OF_TUNABLES = tuple(f"tunable_{i + 1}" for i in range(MOST_TUNABLES))

# The columns: the model's time and its terms in seconds; waves of blocks; share of the places of the last wave that are
# empty; resident warps over the most that a multiprocessor holds; warps that the busiest multiprocessor runs in all;
# threads with work over 32 for each warp with work; sectors of 32 bytes of a load and of a store of a warp; bytes
# written in a sector of a store; sectors asked for over unique ones of a block; bytes that the resident blocks use over
# the L1 cache; standard deviation of log(seconds) that the model admits; the block and the grid; registers and bytes
# spilled of a thread; bytes of shared memory of a block, and blocks that a multiprocessor holds; log2(1 + value) of the
# tunables beside the dimensions of the block, in the site's order, 0 where there is none.
TERMS: tuple[str, ...] = (
    "seconds", *(f"{n}_s" for n in OF_TIME), *_OF_MODEL, *_OF_LAUNCH, *_OF_CODE, *_OF_TUNABLES
)  # fmt: skip
_PLACE = {name: i for i, name in enumerate(TERMS)}
FACTOR = 1.5  # factor on a term to compute its effect on the time


def responses(table: np.ndarray) -> np.ndarray:
    """The response of each setting's time to each term: the change of log(time) over that of log(term) if a term takes
    FACTOR times as long. Shape (settings, number of terms), for a table of `LaunchTerms.at`; 0 without a model.

    The terms are combined as in the model (`dagc.perf.volume`); the constant of the launch stays."""
    parts = table[:, [_PLACE[f"{n}_s"] for n in OF_TIME]].T
    with np.errstate(all="ignore"):
        rest = table[:, 0] - _together(parts)
        out = []
        for i in range(len(parts)):
            scaled = parts.copy()
            scaled[i] *= FACTOR
            out.append(np.log((_together(scaled) + rest) / table[:, 0]) / math.log(FACTOR))
    return np.asarray(np.nan_to_num(np.array(out).T, nan=0.0, posinf=0.0, neginf=0.0))


def _together(parts: np.ndarray) -> np.ndarray:
    """The time of a launch from its terms, in their order, without the constant of a launch."""
    of = dict(zip(OF_TIME, parts, strict=True))
    overlap, square, soft = (CALIBRATION[n][0] for n in ("c_overlap", "c_square", "soft"))
    starts, turnover = of.pop("starts"), of.pop("turnover")
    limits = np.array([of.pop("misses") + of.pop("l2"), *of.values()])
    most = np.maximum(limits.max(axis=0), 1e-15)
    work = most + overlap * (limits.sum(axis=0) - most) + square * ((limits**2).sum(axis=0) - most**2) / most
    longer, shorter = np.maximum(work, starts), np.minimum(work, starts)
    return np.asarray(longer + soft * shorter**2 / longer + turnover)


Constants: TypeAlias = tuple[tuple[str, int], ...]  # tunables that are constants of the compiled code


@dataclass(frozen=True, slots=True)
class LaunchTerms:
    """The terms of some settings of a site. `note`: the assumptions of the model, or why there is none."""

    choices: tuple[Choice, ...]
    note: str
    _fixed: np.ndarray  # columns that do not depend on sizes; NaN elsewhere
    _clock: float
    _graph: Graph
    _site: Site
    _groups: tuple[tuple[tuple[int, ...], PartialEvaluator], ...]  # places of settings, the model's steps over them

    def at(self, values: Mapping[str, Number]) -> np.ndarray:
        """The table, (settings, len(TERMS)). `values`: the rank's scalars. Raises KeyError for one that is missing.

        A setting that cannot be launched there has `seconds` infinite."""
        table = self._fixed.copy()
        with np.errstate(all="ignore"):
            for places, steps in self._groups:
                self._fill(table, list(places), steps, values)
            for i, choice in enumerate(self.choices):
                blocks = self._blocks(choice, values)
                table[i, _PLACE["log2_blocks"]] = math.log2(blocks) if blocks > 0 else math.nan
                if blocks == 0:
                    table[i, 0] = math.inf
        return table

    def _fill(
        self, table: np.ndarray, places: list[int], steps: PartialEvaluator, values: Mapping[str, Number]
    ) -> None:
        features = offered(self._graph.program, op_of(self._graph, self._site))
        sizes = {n: int(features[n].value(values)) for n in steps.asked if n in features}
        computed = steps.steps(sizes)
        seconds = {"seconds": "time", **{f"{n}_s": f"t_{n}" for n in OF_TIME}}
        for column, name in (*seconds.items(), *_OF_MODEL.items(), ("resident", "resident")):
            scale = self._clock if column in seconds else 1.0
            if name in computed:
                table[places, _PLACE[column]] = computed[name] / scale

    def _blocks(self, choice: Choice, values: Mapping[str, Number]) -> float:
        """Number of blocks of the grid; NaN if it is not known before the dag runs."""
        try:
            grid = grid_of(self._graph, self._site, choice, values)
        except (sym.UnboundName, ArithmeticError):
            return math.nan
        return float(math.prod(grid)) if min(grid) > 0 else 0.0


def launch_terms(
    graph: Graph,
    site: Site,
    choices: Sequence[Choice],
    hardware: Hardware,
    *,
    resources: Resources | Sequence[Resources] = ASSUMED,
    calibration: Mapping[str, float] | None = None,
) -> LaunchTerms:
    """The terms of `choices` on a GPU. `resources`: of the compiled kernel, one for all settings or one for each (a
    tunable may be a constant of the code). `calibration` overrides constants of the model."""
    of_each = [resources] * len(choices) if isinstance(resources, Resources) else list(resources)
    fixed = np.full((len(choices), len(TERMS)), np.nan)
    op = op_of(graph, site)
    others = [own for d in site.open if not d.axis and (own := own_name(d.name)) != VARIANT]
    plain = [n for n in others if not n.startswith(FORM)]  # forms are seen in the text
    columns: dict[str, list[float]] = {}
    for i, (choice, taken) in enumerate(zip(choices, of_each, strict=True)):
        block = block_of(graph.program, op, choice)
        chosen = {n: float(v) for n, v in (*op.tunables, *choice.own.items()) if n != VARIANT}
        row: dict[str, float] = {f"log2_b{a}": math.log2(b) for a, b in zip(AXES, block, strict=True)}
        row |= {"log2_threads": math.log2(math.prod(block)), "registers": taken.registers}
        row |= {"spills": taken.spills, "shared": taken.shared, **dict.fromkeys(_OF_TUNABLES, 0.0)}
        row |= {f"tunable_{k + 1}": math.log2(1 + chosen[n]) for k, n in enumerate(plain[:MOST_TUNABLES])}
        fixed[i, [_PLACE[n] for n in row]] = list(row.values())
        of_setting: dict[str, float] = {f"blockDim_{a}": b for a, b in zip(AXES, block, strict=True)}
        of_setting |= {"log2_threads": row["log2_threads"], "registers": taken.registers}
        of_setting |= {tunable(n).name: chosen[n] for n, _ in op.tunables}
        for name, value in of_setting.items():
            columns.setdefault(name, []).append(value)
    codes = [tuple((n, v) for n, v in s.own.items() if n in others and isinstance(v, int)) for s in choices]
    groups, note = _groups(graph, site, of_each, codes, columns, hardware, calibration or {})
    return LaunchTerms(tuple(choices), note, fixed, hardware.clock, graph, site, groups)


def _groups(
    graph: Graph, site: Site, resources: Sequence[Resources], codes: Sequence[Constants],
    columns: Mapping[str, Sequence[float]], hardware: Hardware, calibration: Mapping[str, float],
) -> tuple[tuple[tuple[tuple[int, ...], PartialEvaluator], ...], str]:  # fmt: skip
    """The model over the settings that are compiled to code with equal counts, and its note. `codes`: for each setting,
    the tunables that are not a dimension of the block, which are constants of its code."""
    alike: dict[Any, list[int]] = {}
    codes, resources = _as_read(graph, site, codes, resources)
    forms = [tuple((n, v) for n, v in code if n.startswith(FORM)) for code in codes]
    keys = [(*of_form, taken.shared, taken.instructions) for of_form, taken in zip(forms, resources, strict=True)]
    apart = len(set(zip(keys, codes, strict=True))) <= MOST_MODELS * len(set(forms))
    for i, key in enumerate(keys):
        alike.setdefault((key, codes[i] if apart else ()), []).append(i)
    out, note = [], ""
    for places in alike.values():
        try:
            code = (codes if apart else forms)[places[0]]
            program = _program(graph, site, resources[places[0]], code, hardware, calibration)
        except (NotUnderstood, RecursionError) as error:
            return (), f"no model: {getattr(error, 'message', 'its text is nested too deeply to be read')}"
        names = {p.name for p in program.parameters}
        known = {n: np.array([v[i] for i in places]) for n, v in columns.items() if n in names}
        out.append((tuple(places), PartialEvaluator(program, known)))
        unknown = (names - known.keys()) - offered(graph.program, op_of(graph, site)).keys()
        if unknown:
            return (), f"no model: it depends on {', '.join(sorted(unknown))}, which is not known before the dag runs"
    return tuple(out), note


def _as_read(
    graph: Graph, site: Site, codes: Sequence[Constants], resources: Sequence[Resources]
) -> tuple[list[Constants], list[Resources]]:
    """For each setting the first whose kernel reads the same, as it does under some forms."""
    op, program = op_of(graph, site), graph.program
    first: dict[Hashable, tuple[Constants, Resources]] = {}
    of_code: dict[Constants, tuple[Constants, Resources]] = {}
    for code, taken in zip(codes, resources, strict=True):
        if code not in of_code:
            plain = tuple((n, v) for n, v in code if not n.startswith(FORM))
            one = replace(op, tunables=tuple((n, dict(code).get(n, v)) for n, v in op.tunables))
            of_code[code] = first.setdefault((plain, text_and_grid(program, one)), (code, taken))
    return [of_code[code][0] for code in codes], [of_code[code][1] for code in codes]


def _with_constants(graph: Graph, op: KernelOp, code: Constants) -> Accesses | None:
    """The accesses with tunables as constants. None if loops depend on loaded values, since the assumptions about these
    must be the same for all settings."""
    accesses = read_accesses(graph.program, op, {n: int(v) for n, v in code})
    return None if accesses.notes else accesses


def _program(
    graph: Graph, site: Site, taken: Resources, code: Constants, hardware: Hardware, calibration: Mapping[str, float]
) -> RationalProgram:
    """The model of the kernel under its forms; where that text cannot be read, of the kernel as written."""
    written, forms = op_of(graph, site), {n: v for n, v in code if n.startswith(FORM)}
    op = replace(written, tunables=tuple({**dict(written.tunables), **forms}.items()))
    try:
        # Forms are in the text of `op`: no constants, and the steps are those that the ranking model has.
        accesses = _with_constants(graph, op, code) if len(code) > len(forms) else None
        whole = volume_program(graph.program, op, accesses, resources=taken, features=True)
    except NotUnderstood:
        if all(value == AS_WRITTEN for value in forms.values()):
            raise
        plain = tuple((n, AS_WRITTEN if n in forms else v) for n, v in code)
        return _program(graph, site, taken, plain, hardware, calibration)
    values = {**hardware.parameters(), **calibration_of(hardware), **calibration}
    asked = {p.name for p in whole.parameters if p.kind is ParameterKind.HARDWARE}
    return specialise(whole, {n: v for n, v in values.items() if n in asked})


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


def features(terms: Array) -> Array:
    """FEATURES of the settings of a kernel at a size, shape (settings, len(FEATURES)); `terms` are those of
    `dagc.choice.residual.LaunchTerms.at`. Unknown values are NaN."""
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
