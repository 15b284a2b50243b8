"""Oracles of launch settings as arrays: the model's prediction for every kernel, size and setting, and the measured
time.

For `benchmarks.tune.learn` (trains the learner of `dagc tune`) and `benchmarks.tune.corpus` (judges it).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tune.compiled import programs, read_compiled
from benchmarks.tune.oracle_csv import read_oracle
from dagc import api
from dagc.base.errors import DagcError
from dagc.choice.legal import legal_settings, open_sites
from dagc.choice.residual import TERMS, coordinates, launch_terms
from dagc.choice.types import Case, Site
from dagc.cuda.ptx import ASSUMED, Resources
from dagc.ir.choice import AS_WRITTEN, Choice, names_form
from dagc.ir.program import Graph
from dagc.perf.hardware import Hardware, load_hardware
from dagc.study.sizes import alike

NORMAL = 1.96  # half of a 95 % interval in standard deviations
LIMITS = {"max_threads_per_block": 1024, "shared_per_block": 49152, "warp_size": 32}

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One op of an oracle. `logs`: logarithm of the median time in seconds, (sizes, settings), NaN where there is none;
    `noise`: relative standard deviation of the median; `terms`: what the model says, (sizes, settings, TERMS)."""

    program: str
    op: str
    site: Site
    choices: tuple[Choice, ...]
    cases: tuple[Case, ...]
    logs: Array
    noise: Array
    terms: Array
    places: Array
    graph: Graph

    @property
    def family(self) -> str:
        return self.program.split(".")[0] if "." in self.program else f"polybench {self.program}"

    @property
    def wide(self) -> bool:
        """Whether its blocks have two dimensions or more."""
        return sum(bool(d.axis) for d in self.site.open) >= 2

    @property
    def tuned_code(self) -> bool:
        """Whether it has tunables beside the dimensions of the block."""
        return any(not d.axis for d in self.site.open)


def load(oracles: Sequence[Path], gpu: str, compiled: Sequence[Path], forms: bool = False) -> list[Measured]:
    """The ops of some oracles, in their order; flushed cells that did not fail. `compiled`: files of
    `benchmarks.tune.compiled`. `forms`: forms of kernels are among their settings."""
    hardware, paths = load_hardware(gpu), programs()
    known = {op: rows for path in compiled for op, rows in read_compiled(path).items()}
    found: dict[tuple[str, str], dict[Case, dict[Choice, tuple[float, float]]]] = {}
    for cell in (cell for path in oracles for cell in read_oracle(path)):
        if cell.flush and not cell.failure and cell.seconds > 0:
            noise = (cell.high - cell.low) / 2 / NORMAL / cell.seconds
            of = found.setdefault((cell.program, cell.op), {}).setdefault(cell.case, {})
            of[without_forms_as_written(cell.choice)] = math.log(cell.seconds), noise
    return [
        _measured(paths[program], program, op, times, hardware, known.get((program, op), {}), forms)
        for (program, op), times in found.items()
    ]


def without_forms_as_written(choice: Choice) -> Choice:
    """An oracle may be older than a form."""
    return Choice(tuple((n, v) for n, v in choice.decisions if v != AS_WRITTEN or not names_form((n,))))


def _measured(
    path: Path, program: str, op: str, times: dict[Case, dict[Choice, tuple[float, float]]], hardware: Hardware,
    known: dict[Choice, Resources], forms: bool,
) -> Measured:  # fmt: skip
    graph = replace(api.read(path), forms=forms).graph()
    (site,) = open_sites(graph, [op])
    choices = legal_settings(graph, site, LIMITS)
    each = alike(choices, [known.get(s, ASSUMED) for s in choices])
    cases = tuple(sorted(times))
    named = list(map(without_forms_as_written, choices))
    cells = np.array([[times[p].get(s, (math.nan, math.nan)) for s in named] for p in cases])
    terms = np.array(list(_tables(path, graph, site, choices, cases, hardware, each)))
    return Measured(
        program, op, site, choices, cases, cells[:, :, 0], cells[:, :, 1], terms, coordinates(site, choices), graph
    )


def _tables(
    path: Path, graph: Graph, site: Site, choices: Sequence[Choice], cases: Sequence[Case], hardware: Hardware,
    each: Sequence[Resources],
) -> Iterator[Array]:  # fmt: skip
    """As `dagc tune` has them: NaN where the model cannot be evaluated."""
    unknown = np.full((len(choices), len(TERMS)), np.nan)
    try:
        terms = launch_terms(graph, site, choices, hardware, resources=each)
    except (ArithmeticError, DagcError, KeyError, TypeError, ValueError) as error:
        print(f"{path.stem}: no terms: {error}")
        terms = None
    for case in cases:
        values: dict[str, Any] = {n.lower(): v for n, v in case.params} | {"rank": 0, "ranks": 1}
        try:
            yield unknown if terms is None else _at(terms, values, path, graph, case)
        except (ArithmeticError, DagcError, KeyError, TypeError, ValueError) as error:
            print(f"{path.stem} {case.text}: no terms: {error}")
            yield unknown


def _at(terms: Any, values: dict[str, Any], path: Path, graph: Graph, case: Case) -> Array:
    try:
        return np.asarray(terms.at(values))
    except KeyError:  # a scalar that the set-up computes from its data
        return np.asarray(terms.at(values | _scalars(path, graph, case)))


def _scalars(path: Path, graph: Graph, case: Case) -> dict[str, Any]:
    """The scalars that the set-up computes, of rank 0."""
    setup = graph.program.setup
    if setup is None:
        return {}
    try:
        return _by_set_up(path, setup, case)
    except Exception as error:  # the set-up is the program's code
        print(f"{path.stem} {case.text}: {error}")
        return {}


def _by_set_up(path: Path, setup: Any, case: Case) -> dict[str, Any]:
    source = path.parent / setup.file
    spec = importlib.util.spec_from_file_location(f"corpus_{source.stem}", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data = getattr(module, setup.function)(0, 1, 0, **dict(case.params))
    return {n: v for n, v in data.items() if isinstance(v, int | float | np.integer | np.floating)}
