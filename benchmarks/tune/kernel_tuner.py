"""Kernel Tuner (PyPI: kernel-tuner) beside dagc: the same kernels, legal blocks and measured times for both.

    pip install kernel-tuner
    python -m benchmarks.tune.kernel_tuner benchmarks/results/DATE-GPU-tune/oracle.csv.xz

Writes kernel-tuner.md and kernel-tuner.json beside the oracle. Nothing is launched: an evaluation of a block looks its
time up in the oracle, for Kernel Tuner through its simulation mode. Compile times are measured on this machine, by
nvcc. Run it as a module (`-m`), since its name is that of the package it imports.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import io
import json
import math
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tune.oracle_csv import of_any, read_oracle
from dagc.choice.types import Case
from dagc.ir.choice import Choice

ROOT = Path(__file__).parents[2]
BUDGETS = (1, 3, 5, 10)
DEFAULTS = {1: Choice((("bx", 256),)), 2: Choice((("bx", 32), ("by", 8)))}
# Not `brute_force` (it takes no budget), those that need packages of others (pyATF, scikit-optimize), and
# `basinhopping` (a numerical optimiser that asks for known blocks over and over: 30 times as long as the others).
STRATEGIES = """random_sample greedy_ils greedy_mls ordered_greedy_mls mls simulated_annealing genetic_algorithm
    diff_evo pso firefly_algorithm dual_annealing minimize bayes_opt nsga2 nsga3 hybrid_vndx
    adaptive_tabu_greywolf""".split()
ITERATIONS = 7  # launches of a block in Kernel Tuner, its default

# Kernels of one kind: a constant that was fitted to one of them has seen the others.
FAMILIES = {
    "products": ("gemm", "2mm", "3mm"),
    "rank updates": ("syrk", "syr2k"),
    "matrix and vector": ("atax", "bicg", "mvt", "gesummv"),
    "statistics": ("corr", "covar"),
    "stencils": ("2dconv", "3dconv"),
    "fdtd-2d": ("fdtd-2d",),
    "gramschm": ("gramschm",),
}
H200 = {
    "multiprocessors": 132,
    "max_threads_per_multiprocessor": 2048,
    "max_blocks_per_multiprocessor": 32,
    "registers_per_multiprocessor": 65536,
    "l1_bytes": 200 * 1024,
    "l2_bytes": 50 << 20,
}
CLOCK = 1.755e9  # of the multiprocessors, Hz
REGISTERS = 32  # of a thread: these kernels need no more
# Constant of the volume model -> first guess, least, most. Fitting starts here, not at the values in use.
GUESSES = {
    "c_issue": (1, 0.8, 1.25),
    "c_load": (1, 0.7, 1.6),
    "c_store": (1.5, 0.5, 4),
    "c_sector": (0.5, 0.25, 1),
    "c_read": (0.01, 0.004, 0.02),
    "c_write": (0.02, 0.01, 0.04),
    "c_hbm": (1 / 2277, 1 / 2600, 1 / 1900),
    "c_wait": (290, 50, 1000),
    "c_miss": (350, 50, 1000),
    "c_serial": (5, 2, 15),
    "c_start": (1.2, 1, 1.4),
    "c_overlap": (0.3, 0.01, 1),
    "c_square": (0.2, 0.01, 1),
    "soft": (0.2, 0.01, 1),
    "launch": (3500, 500, 12000),
    "turn_warp": (22, 5, 60),
}


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One kernel at one size: its legal blocks and the time of each."""

    program: str
    op: str
    case: Case
    times: dict[Choice, float]

    @property
    def dimensions(self) -> int:
        return len(next(iter(self.times)))

    @property
    def default(self) -> Choice:
        return DEFAULTS[self.dimensions]

    def regret(self, tried: Iterable[Choice]) -> float:
        """The best of the blocks over the best of all."""
        return min(self.times[s] for s in tried) / min(self.times.values())


def read_cases(oracle: Path) -> list[KernelCase]:
    """The cases of an oracle, in its order."""
    found: dict[tuple[str, str, Case], dict[Choice, float]] = {}
    for cell in read_oracle(oracle):
        if cell.failure:
            raise ValueError(f"{cell.program} {cell.op} {cell.case.text}: a block failed ({cell.failure})")
        found.setdefault((cell.program, cell.op, cell.case), {})[of_any(cell.choice)] = cell.seconds
    return [KernelCase(*key, times) for key, times in found.items()]


# ---- Kernel Tuner ---------------------------------------------------------------------------


def space_of(case: KernelCase) -> tuple[dict[str, list[int]], list[str]]:
    """`tune_params` and `restrictions` whose legal configurations are the blocks of the case."""
    names = list(case.default)
    params = {n: sorted({int(s[n]) for s in case.times}) for n in names}
    return params, ["32 <= bx * by <= 1024"] if len(names) == 2 else []


def cache_of(case: KernelCase) -> dict[str, Any]:
    """The case as a cache file of Kernel Tuner, for its simulation mode. Times there are in milliseconds."""
    params, _ = space_of(case)
    zero = dict.fromkeys("compile_time verification_time benchmark_time strategy_time framework_time".split(), 0)
    return {
        "device_name": "NVIDIA H200",
        "kernel_name": case.op,
        "problem_size": [1, 1, 1],
        "tune_params_keys": list(params),
        "tune_params": params,
        "objective": "time",
        "cache": {
            ",".join(map(str, choice.values())): {
                **choice,
                "time": seconds * 1e3,
                "times": [seconds * 1e3],
                **zero,
                "timestamp": "2026-11-21 00:00:00",
            }
            for choice, seconds in case.times.items()
        },
    }


def write_cache(case: KernelCase, path: Path) -> None:
    path.write_text(json.dumps(cache_of(case)))


def search(case: KernelCase, cache: Path, strategy: str, evaluations: int, seed: int) -> list[Choice]:
    """The blocks that a strategy of Kernel Tuner evaluates within its budget, each once, in its order."""
    import kernel_tuner

    params, restrictions = space_of(case)
    # Its own `seed` argument seeds nothing in version 1.5: the strategies draw from these two.
    random.seed(seed)
    np.random.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            case.op, f"__global__ void {case.op}() {{}}", (1, 1, 1), [], params,
            restrictions=restrictions or None, lang="CUDA", block_size_names=list(params), quiet=True,
            strategy=strategy, strategy_options={"max_fevals": evaluations}, cache=str(cache), simulation_mode=True,
        )  # fmt: skip
    tried = [Choice(tuple((n, int(r[n])) for n in params)) for r in results if r]
    return [s for s in dict.fromkeys(tried) if s in case.times][:evaluations]


@dataclass(slots=True)
class Outcome:
    """Regrets of one way to choose: evaluations -> case (its place in the list) -> regret of each seed.

    `failures`: (evaluations, case) -> what it said where it found nothing.
    """

    name: str
    regrets: dict[int, dict[int, list[float]]]
    failures: dict[tuple[int, int], str]


def run_strategy(name: str, cases: Sequence[KernelCase], caches: Sequence[Path], seeds: int) -> tuple[Outcome, Outcome]:
    """A strategy by itself, and with the default block as its first evaluation. One run a budget: some adapt to it."""
    alone = Outcome(name, {0: {i: [c.regret([c.default])] for i, c in enumerate(cases)}}, {})
    helped = Outcome(name, dict(alone.regrets), alone.failures)
    for budget in BUDGETS:
        alone.regrets[budget], helped.regrets[budget] = {}, {}
        for i, case in enumerate(cases):
            if budget > len(case.times):
                continue
            own, first = [], []
            try:
                for seed in range(seeds):
                    # Another seed for each case: else all cases would be searched from the same few blocks.
                    tried = search(case, caches[i], name, budget, seed * len(cases) + i)
                    if not tried:
                        raise ValueError("no legal block evaluated")
                    own.append(case.regret(tried))
                    first.append(case.regret([case.default, *tried[: budget - 1]]))
            except Exception as error:  # whatever goes wrong inside a strategy is a result of the comparison
                alone.failures[budget, i] = f"{type(error).__name__}: {error}"
                continue
            alone.regrets[budget][i], helped.regrets[budget][i] = own, first
    return alone, helped


# ---- dagc -----------------------------------------------------------------------------------


class Volume:
    """The volume model of one kernel, evaluated over arrays of sizes and blocks."""

    def __init__(self, program: str, op: str) -> None:
        import sympy as sp

        from dagc import api
        from dagc.choice.legal import op_of, open_sites
        from dagc.perf.program import Assign
        from dagc.perf.volume import CALIBRATION, volume_program

        graph = api.load_graph(ROOT / f"samples/polybench/{program}.dag")
        (site,) = open_sites(graph, [op])
        started = time.perf_counter()
        rational = volume_program(graph.program, op_of(graph, site))
        self.seconds = time.perf_counter() - started
        self.result = rational.result
        late = set(CALIBRATION)
        self.early: list[tuple[str, list[str], Callable[..., Any]]] = []
        self.late: list[tuple[str, list[str], Callable[..., Any]]] = []
        for assign in rational.body:
            assert isinstance(assign, Assign), "a volume has no branches"
            names = sorted(assign.value.free_symbols, key=lambda s: s.name)
            step = (assign.name, [s.name for s in names], sp.lambdify(names, assign.value, modules="numpy"))
            if any(n in late for n in step[1]):
                late.add(assign.name)
                self.late.append(step)
            else:
                self.early.append(step)
        made = {name for name, _, _ in (*self.early, *self.late)}
        self.unknown = {
            n for _, names, _ in self.early for n in names if n.startswith("uniform_") and n not in made
        }  # values that the kernel loads from memory, one for all threads

    def prepare(self, cases: Sequence[KernelCase]) -> dict[str, Any]:
        """All that does not hang on the calibration, a row for each block of each case."""
        rows = [(c.case, s) for c in cases for s in c.times]
        env: dict[str, Any] = {
            n.lower(): np.array([dict(case.params)[n] for case, _ in rows]) for n, _ in cases[0].case.params
        }
        smallest = np.min(list(env.values()), axis=0)
        env |= dict.fromkeys(self.unknown, smallest // 2)  # the column in the middle
        env |= {n: np.full(len(rows), v) for n, v in H200.items()}
        env["blockDim_x"] = np.array([s["bx"] for _, s in rows])
        env["blockDim_y"] = np.array([s.get("by", 1) for _, s in rows])
        env["registers"] = np.full(len(rows), REGISTERS)
        env["log2_threads"] = np.log2(env["blockDim_x"] * env["blockDim_y"])
        self._run(self.early, env)
        return env

    def seconds_of(self, env: Mapping[str, Any], calibration: Mapping[str, float]) -> np.ndarray:
        """Predicted times of the rows. Constants that are not fitted (GUESSES) are those in use."""
        from dagc.perf.volume import CALIBRATION

        full = {**env, **{name: value for name, (value, *_) in CALIBRATION.items()}, **calibration}
        self._run(self.late, full)
        return np.asarray(full[self.result]) / CLOCK

    @staticmethod
    def _run(steps: Iterable[tuple[str, list[str], Callable[..., Any]]], env: dict[str, Any]) -> None:
        rows = len(env["registers"])
        for name, names, function in steps:
            # Each value a whole row: NumPy's minimum of a number and an array wants equal shapes.
            values = [np.broadcast_to(env[n], rows) for n in names]
            env[name] = np.broadcast_to(function(*values), rows)


class Model:
    """The volume models of all kernels of the cases; ranks with one calibration or fits another."""

    def __init__(self, cases: Sequence[KernelCase]) -> None:
        self.cases = cases
        self.groups: dict[tuple[str, str], list[int]] = {}
        for i, case in enumerate(cases):
            self.groups.setdefault((case.program, case.op), []).append(i)
        self.kernels = {key: Volume(*key) for key in self.groups}
        self.rows = {key: self.kernels[key].prepare([cases[i] for i in places]) for key, places in self.groups.items()}
        self.measured = [np.array(list(c.times.values())) for c in cases]

    def predict(self, calibration: Mapping[str, float], places: set[int]) -> dict[int, np.ndarray]:
        """KernelCase -> predicted times of its blocks."""
        out: dict[int, np.ndarray] = {}
        for key, own in self.groups.items():
            if not places.isdisjoint(own):
                whole = self.kernels[key].seconds_of(self.rows[key], calibration)
                parts = np.split(whole, np.cumsum([len(self.measured[i]) for i in own])[:-1])
                out |= {i: part for i, part in zip(own, parts, strict=True) if i in places}
        return out

    def rank(self, calibration: Mapping[str, float], places: set[int]) -> dict[int, list[Choice]]:
        """KernelCase -> its blocks, the one thought fastest first."""
        out = {}
        for i, predicted in self.predict(calibration, places).items():
            blocks = list(self.cases[i].times)
            out[i] = [blocks[int(j)] for j in np.argsort(predicted, kind="stable")]
        return out

    def fit(self, places: set[int]) -> dict[str, float]:
        """The constants that fit some of the cases: order among the blocks near the best counts most."""
        from scipy.optimize import least_squares

        names = list(GUESSES)
        start, low, high = (np.log([g[k] for g in GUESSES.values()]) for k in range(3))

        def residuals(logs: np.ndarray) -> np.ndarray:
            out = [0.15 * (logs - start)]
            for i, predicted in self.predict(dict(zip(names, np.exp(logs), strict=True)), places).items():
                times = self.measured[i]
                off = np.log(predicted) - np.log(times)
                near = 1 / (1 + 4 * (times / times.min() - 1))
                flat = 0.1 if times.max() < 1.05 * times.min() else 1.0  # nothing to choose: little to learn
                out += [(off - off.mean()) * near * flat * 3 / math.sqrt(len(times)), np.array([0.1 * off.mean()])]
            return np.concatenate(out)

        inside = np.clip(start, low + 1e-5, high - 1e-5)
        found = least_squares(residuals, inside, bounds=(low, high), max_nfev=30)
        return dict(zip(names, (float(v) for v in np.exp(found.x)), strict=True))


def ranked(name: str, cases: Sequence[KernelCase], ranks: Mapping[int, Sequence[Choice]]) -> Outcome:
    """k evaluations: the best of the first k. None: the first, unseen."""
    regrets = {
        k: {i: [c.regret(ranks[i][: max(1, k)])] for i, c in enumerate(cases) if k <= len(c.times)}
        for k in (0, *BUDGETS)
    }
    return Outcome(name, regrets, {})


def rank_model(cases: Sequence[KernelCase]) -> tuple[list[Outcome], dict[str, Any]]:
    """dagc with the constants in use (fitted to this oracle), and with each family ranked by a fit without it."""
    from dagc.perf.volume import CALIBRATION

    model = Model(cases)
    everything = set(range(len(cases)))
    started = time.perf_counter()
    as_it_is = model.rank({n: v for n, (v, _, _) in CALIBRATION.items()}, everything)
    ranking = time.perf_counter() - started
    unseen: dict[int, list[Choice]] = {}
    for members in FAMILIES.values():
        own = {i for i, c in enumerate(cases) if c.program in members}
        if own:
            unseen |= model.rank(model.fit(everything - own), own)
    facts = {
        "read_kernel_s": float(np.median([k.seconds for k in model.kernels.values()])),
        "rank_case_s": ranking / len(cases),
    }
    return [
        ranked("dagc, family unseen", cases, unseen),
        ranked("dagc, as it is", cases, as_it_is),
    ], facts


def one_block(cases: Sequence[KernelCase]) -> Outcome:
    """What the best single block would do, had the oracle chosen it: one for each number of dimensions."""
    ranks: dict[int, list[Choice]] = {}
    for dimensions in {c.dimensions for c in cases}:
        own = [i for i, c in enumerate(cases) if c.dimensions == dimensions]
        blocks = list(cases[own[0]].times)
        order = sorted(blocks, key=lambda s: sum(math.log(cases[i].times[s]) for i in own))
        ranks |= dict.fromkeys(own, order)
    return ranked("one order for all kernels", cases, ranks)


# ---- compile times --------------------------------------------------------------------------


def kernel_text(program: str, op: str, choice: Choice) -> str:
    """One kernel of a program as a CUDA source of its own, for Kernel Tuner to compile: the block is a constant."""
    from dagc import api
    from dagc.choice.legal import op_of, open_sites
    from dagc.forms import kernel_of

    graph = api.load_graph(ROOT / f"samples/polybench/{program}.dag")
    (site,) = open_sites(graph, [op])
    kernel, impl = kernel_of(graph.program, op_of(graph, site))
    assert impl.code is not None
    assert impl.code.text is not None
    formals = [f"int {f.name}" if f.mode is None else f"real* {f.name}" for f in kernel.formals]
    constants = [
        f"constexpr double {p.name} = {p.value};"
        for p in graph.program.params
        if isinstance(p.value, float) and not isinstance(p.value, bool)
    ]
    blocks = [f"constexpr int {n} = {v};" for n, v in choice.items()]
    head = "\n".join(["typedef float real;", *constants, *blocks])
    return f'{head}\nextern "C" __global__ void {kernel.name}({", ".join(formals)}) {{\n{impl.code.text}\n}}\n'


TIMED = (("gemm", "gemm"), ("syr2k", "syr2k"), ("2dconv", "conv"), ("fdtd-2d", "hz"))
TIMED_BLOCKS = ((32, 8), (16, 16), (8, 64), (128, 2))
ARCH = "90"


def compile_times() -> dict[str, Any]:
    """Seconds to compile one configuration (nvcc, NVRTC), and one program of dagc, on this machine."""
    sources = [kernel_text(p, op, Choice((("bx", x), ("by", y)))) for p, op in TIMED for x, y in TIMED_BLOCKS]
    facts: dict[str, Any] = {"machine": f"{os.cpu_count()} cores, {platform.machine()}, no GPU", "configurations": 16}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        if shutil.which("nvcc"):
            facts["nvcc"] = re.findall(r"release ([\d.]+)", _said(["nvcc", "--version"]))[0]
            facts["nvcc_s"] = [_nvcc(source, here) for source in sources]
            facts["dagc_program_s"] = [_dagc(program, here / program) for program, _ in TIMED]
    nvrtc = load_nvrtc()
    if nvrtc is not None:
        _nvrtc(nvrtc, sources[0])  # the first loads its library
        facts["nvrtc_s"] = [_nvrtc(nvrtc, source) for source in sources]
    return facts


def _said(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _nvcc(source: str, folder: Path) -> float:
    """As the PyCUDA backend of Kernel Tuner calls it."""
    file = folder / "kernel.cu"
    file.write_text(source)
    started = time.perf_counter()
    _said(["nvcc", "-cubin", f"-arch=sm_{ARCH}", "-o", str(folder / "kernel.cubin"), str(file)])
    return time.perf_counter() - started


def _dagc(program: str, folder: Path) -> float:
    """As `dagc tune` compiles: once a program, with the blocks of all its kernels left open."""
    from dagc import api
    from dagc.study.build import build
    from dagc.study.task import tuning_task

    before = os.environ.get("DAGC_CACHE")
    # Else what was built once, by an earlier run of this, would be taken from the cache.
    os.environ["DAGC_CACHE"] = str(folder / "cache")
    try:
        started = time.perf_counter()
        made = tuning_task(api.read(ROOT / f"samples/polybench/{program}.dag"), target="cuda", arch=f"sm_{ARCH}")
        build(made, folder)
        return time.perf_counter() - started
    finally:
        if before is None:
            del os.environ["DAGC_CACHE"]
        else:
            os.environ["DAGC_CACHE"] = before


def load_nvrtc() -> ctypes.CDLL | None:
    """NVRTC, which the CuPy and CUDA-Python backends of Kernel Tuner compile with; None where there is none."""
    compiler = shutil.which("nvcc")
    folder = Path(compiler).resolve().parents[1] / "lib64" if compiler else Path()
    for name in (str(folder / "libnvrtc.so"), "libnvrtc.so"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _nvrtc(library: ctypes.CDLL, source: str) -> float:
    program = ctypes.c_void_p()
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{ARCH}".encode())
    started = time.perf_counter()
    failed = library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    failed = failed or library.nvrtcCompileProgram(program, 1, options)
    seconds = time.perf_counter() - started
    library.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise RuntimeError(f"NVRTC: error {failed}")
    return seconds


# ---- what is written ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """Regrets of a group of cases after so many evaluations."""

    mean: float  # geometric, over cases and seeds
    worst_case: float  # of the geometric means over seeds
    worst_run: float
    failure: str = ""


def figures(outcome: Outcome, places: Sequence[int], budget: int) -> Figures | None:
    """None where no case of the group has so many blocks."""
    found = [outcome.regrets[budget][i] for i in places if i in outcome.regrets[budget]]
    failed = [outcome.failures[budget, i] for i in places if (budget, i) in outcome.failures]
    if failed:
        # A mean over those cases alone that it could search would flatter.
        return Figures(math.nan, math.nan, math.nan, failed[0])
    if not found:
        return None
    means = [math.exp(float(np.log(r).mean())) for r in found]
    return Figures(math.exp(float(np.log(means).mean())), max(means), max(max(r) for r in found))


def table(outcomes: Sequence[Outcome], places: Sequence[int]) -> list[str]:
    """Lines of a Markdown table: geometric mean / worst case."""
    budgets = [k for k in (0, *BUDGETS) if any(figures(o, places, k) for o in outcomes)]
    lines = ["| | " + " | ".join(f"{k}" for k in budgets) + " |", "|---" * (len(budgets) + 1) + "|"]
    for outcome in outcomes:
        cells = []
        for k in budgets:
            found = figures(outcome, places, k)
            known = found is not None and not found.failure
            cells.append(f"{found.mean:.3f} / {found.worst_case:.2f}" if known and found else "-")
        lines.append(f"| {outcome.name} | " + " | ".join(cells) + " |")
    return lines


def wall_times(cases: Sequence[KernelCase], facts: Mapping[str, Any], own: float) -> dict[str, Any]:
    """Seconds for k evaluations of one kernel: compiling (measured here) and launching (from the oracle).

    `own`: seconds that Kernel Tuner itself spends on a search of ten evaluations.
    """
    launches = ITERATIONS * math.exp(float(np.mean([np.log(list(c.times.values())).mean() for c in cases])))
    out: dict[str, Any] = {"launches_s": launches, "kernel_tuner_itself_s": own}
    for name in ("nvcc_s", "nvrtc_s", "dagc_program_s"):
        if name in facts:
            out[name] = float(np.median(facts[name]))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("-o", dest="output", type=Path, help="folder (default: that of the oracle)")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="names, separated by commas")
    args = parser.parse_args()
    cases = read_cases(args.oracle)
    mine, facts = rank_model(cases)
    alone, helped = [], []
    spent = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        caches = [Path(folder) / f"{i}.json" for i in range(len(cases))]
        for case, cache in zip(cases, caches, strict=True):
            write_cache(case, cache)
        for name in args.strategies.split(","):
            started = time.perf_counter()
            own, first = run_strategy(name, cases, caches, args.seeds)
            alone.append(own)
            helped.append(first)
            print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
        started = time.perf_counter()
        for case, cache in zip(cases, caches, strict=True):
            search(case, cache, "random_sample", min(10, len(case.times)), 0)
        itself = (time.perf_counter() - started) / len(cases)
    facts |= compile_times()
    facts |= {"search_s": time.perf_counter() - spent, "seeds": args.seeds, "kernel_tuner": version("kernel-tuner")}
    output = args.output or args.oracle.parent
    report(output, cases, [*mine, one_block(cases)], alone, helped, facts, wall_times(cases, facts, itself))
    return 0


def report(
    output: Path, cases: Sequence[KernelCase], mine: Sequence[Outcome], alone: Sequence[Outcome],
    helped: Sequence[Outcome],
    facts: Mapping[str, Any], wall: Mapping[str, Any],
) -> None:  # fmt: skip
    """Writes kernel-tuner.md and kernel-tuner.json."""
    groups = {d: [i for i, c in enumerate(cases) if c.dimensions == d] for d in (2, 1)}
    # By the mean after five evaluations; those that fail last.
    order = sorted(range(len(alone)), key=lambda n: _key(alone[n], groups[2]))
    lines = [
        "# Kernel Tuner beside dagc on the oracle of an H200",
        "",
        "    python -m benchmarks.tune.kernel_tuner benchmarks/results/2026-11-21-h200-tune/oracle.csv.xz",
        "",
        f"Kernel Tuner {facts['kernel_tuner']} in simulation mode, {facts['seeds']} seeds a strategy.",
        "docs/explanation/kernel-tuner.md says how to read it.",
        "",
        "Columns: evaluations. Cells: t_chosen / t_best, geometric mean over all kernels, sizes (and seeds) /",
        "worst (kernel, size), its seeds averaged.",
        "`-`: the strategy raised an exception in at least one of these cases.",
    ]
    for dimensions, places in groups.items():
        kernels = len({(cases[i].program, cases[i].op) for i in places})
        blocks = len(cases[places[0]].times)
        lines += [
            "", f"## {dimensions}-D blocks: {kernels} kernels, {len(places)} (kernel, size), {blocks} legal blocks", "",
            *table(mine, places),
            "", "Kernel Tuner. 0 evaluations: the default block.", "", *table([alone[n] for n in order], places),
            "", "Kernel Tuner with the default block as its first evaluation.", "",
            *table([helped[n] for n in order], places),
        ]  # fmt: skip
    failures = {o.name: sorted(set(o.failures.values())) for o in alone if o.failures}
    if failures:
        lines += ["", "## What failed", ""]
        lines += [f"- `{name}`: {'; '.join(texts)[:160]}" for name, texts in failures.items()]
    lines += ["", "## Wall time", "", *wall_lines(facts, wall)]
    (output / "kernel-tuner.md").write_text("\n".join(lines) + "\n")
    data = {
        "facts": dict(facts), "wall": dict(wall), "failures": failures,
        "tables": {
            f"{d}d": {
                kind: {o.name: _figures_of(o, places) for o in outcomes}
                for kind, outcomes in (("dagc", mine), ("kernel_tuner", alone), ("kernel_tuner_default_first", helped))
            }
            for d, places in groups.items()
        },
    }  # fmt: skip
    (output / "kernel-tuner.json").write_text(json.dumps(data, indent=1, allow_nan=False) + "\n")


def _key(outcome: Outcome, places: Sequence[int]) -> tuple[bool, float]:
    found = figures(outcome, places, 5)
    failed = found is None or bool(found.failure)
    return failed, 0.0 if failed or found is None else found.mean


def _figures_of(outcome: Outcome, places: Sequence[int]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for k in (0, *BUDGETS):
        found = figures(outcome, places, k)
        if found is not None and found.failure:
            out[str(k)] = {"failure": found.failure}
        elif found is not None:
            out[str(k)] = {
                "mean": round(found.mean, 5),
                "worst_case": round(found.worst_case, 4),
                "worst_run": round(found.worst_run, 4),
            }
    return out


def wall_lines(facts: Mapping[str, Any], wall: Mapping[str, Any]) -> list[str]:
    """Measured parts, then the sum for k evaluations."""
    lines = [
        f"Measured on {facts['machine']}; launches are those of the oracle ({ITERATIONS} a block, geometric mean",
        "over all blocks).",
        "", "| part | seconds |", "|---|---|",
    ]  # fmt: skip
    parts = {
        "nvcc_s": "nvcc, one configuration as a cubin (Kernel Tuner with PyCUDA)",
        "nvrtc_s": "NVRTC, one configuration (Kernel Tuner with CuPy or CUDA-Python)",
        "dagc_program_s": "dagc, a program with all blocks left open: emit, nvcc, link; nothing cached",
        "launches_s": f"{ITERATIONS} launches of a block",
        "kernel_tuner_itself_s": "Kernel Tuner itself, for ten evaluations",
    }
    lines += [f"| {text} | {wall[name]:.4g} |" for name, text in parts.items() if name in wall]
    lines += [
        f"| dagc: reading a kernel's addresses, once a kernel | {facts['read_kernel_s']:.3g} |",
        f"| dagc: ranking all blocks at one size | {facts['rank_case_s']:.2g} |",
        "", "Sums, one kernel at one size (seconds):", "",
        "| evaluations | Kernel Tuner, nvcc | Kernel Tuner, NVRTC | dagc |", "|---|---|---|---|",
    ]  # fmt: skip
    for k in (0, *BUDGETS):
        row = [str(k)]
        for name in ("nvcc_s", "nvrtc_s"):
            row.append(f"{k * (wall[name] + wall['launches_s']):.2f}" if name in wall else "-")
        whole = facts["read_kernel_s"] + facts["rank_case_s"] + k * wall["launches_s"]
        # Without an evaluation nothing is compiled to choose a block.
        row.append(f"{whole + (wall['dagc_program_s'] if k else 0):.2f}" if "dagc_program_s" in wall else "-")
        lines.append("| " + " | ".join(row) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
