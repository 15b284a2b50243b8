"""Terms of the launch model, for learners: the quantities that the volume model computes for each setting, as columns
of a table.

    terms = launch_terms(graph, site, settings, hardware, resources=of_each_setting)
    terms.at({"ni": 1024, "nj": 768})          # float64, (settings, len(TERMS)), times in seconds

The columns are the same for every site, so that a learner trained on one kernel applies to another. NaN marks unknown
values: for a kernel whose text cannot be read, only the launch and the compiled code are known.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dagc.choice.feature import offered
from dagc.choice.legal import block_of, grid_of, op_of, text_and_grid
from dagc.choice.types import Site
from dagc.cuda.accesses import Accesses
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.cuda.syntax import NotUnderstood
from dagc.ir import sym
from dagc.ir.choice import AS_WRITTEN, FORM, VARIANT, Choice, own_name
from dagc.ir.plan import AXES
from dagc.ir.program import Graph, KernelOp
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


_PLACE = {name: i for i, name in enumerate(TERMS)}


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
