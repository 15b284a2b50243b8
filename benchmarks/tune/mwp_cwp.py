"""MWP-CWP and the volume model over the exhaustive oracle of a GPU: the time of the block that each chooses.

    python -m benchmarks.tune.mwp_cwp benchmarks/results/2026-11-21-h200-tune/oracle.csv.xz [--grid]
        [--counters benchmarks/results/2026-11-21-h200-tune/counters.csv.xz]

t_chosen / t_best over all blocks of a row (kernel and sizes), two-dimensional kernels apart. `--grid` tries other
machine constants of MWP-CWP too: the best of them has seen the oracle, so it is a bound and no forecast. `--counters`:
the same model over functions fitted to hardware counters (`dagc tune --method rational`), beside the others on the
kernels that were counted.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp

from benchmarks.tune.counters_csv import read_counters
from benchmarks.tune.oracle_csv import read_oracle
from dagc import api
from dagc.base.errors import UsageError
from dagc.choice.legal import op_of, open_sites
from dagc.perf.evaluate import PartialEvaluator
from dagc.perf.hardware import load_hardware
from dagc.perf.mwp_cwp import H200, counted_program, fit_counts, machine_values, op_program
from dagc.perf.program import Assign, RationalProgram
from dagc.perf.volume import CALIBRATION, volume_program

SAMPLES = Path(__file__).parents[2] / "samples" / "polybench"
REGISTERS = 32  # of a thread: the models are asked before anything is compiled
TWO_DIMENSIONAL = 6  # a one-dimensional kernel has six blocks, 32 to 1024
GRID = {
    "mem_latency": (40.0, 120.0, 270.0, 480.0, 800.0),
    "departure_del_coal": (0.5, 1.0, 2.0, 4.0, 8.0),
    "departure_del_uncoal": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    "mem_bandwidth": (4.8e12, 1e13, 3e13),
    "issue_cycles": (0.25, 0.5, 1.0),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel at some sizes: seconds of each block."""

    program: str
    op: str
    sizes: dict[str, int]
    bx: np.ndarray
    by: np.ndarray
    seconds: np.ndarray

    @property
    def two_dimensional(self) -> bool:
        return len(self.seconds) > TWO_DIMENSIONAL

    def known(self) -> dict[str, Any]:
        """Program and data parameters. A loop that a kernel starts from a loaded index is taken half-way."""
        sizes = {n.lower(): v for n, v in self.sizes.items()}
        block = {"blockDim_x": self.bx, "blockDim_y": self.by, "log2_threads": np.log2(self.bx * self.by)}
        return sizes | block | {"registers": REGISTERS, "uniform_k_0": sizes.get("ni", 0) // 2}

    def regret(self, predicted: np.ndarray) -> float:
        """t_chosen / t_best; of equal predictions the first."""
        times = np.broadcast_to(predicted, self.seconds.shape)
        return float(self.seconds[int(np.argmin(times))] / self.seconds.min())


def rows_of(path: Path) -> list[Row]:
    """The oracle by kernel and sizes, without blocks that could not be launched."""
    cells = defaultdict(list)
    for cell in read_oracle(path):
        if not cell.failure and np.isfinite(cell.seconds):
            cells[cell.program, cell.op, cell.case.params].append((cell.choice.own, cell.seconds))
    out = []
    for (program, op, params), found in cells.items():
        bx, by = (np.array([s.get(n, 1) for s, _ in found]) for n in ("bx", "by"))
        out.append(Row(program, op, dict(params), bx, by, np.array([t for _, t in found])))
    return out


def default_regret(row: Row) -> float:
    """Of the usual default: 32 x 8, or 256."""
    wanted = (32, 8) if row.two_dimensional else (256, 1)
    here = np.flatnonzero((row.bx == wanted[0]) & (row.by == wanted[1]))
    return float(row.seconds[here[0]] / row.seconds.min())


def per_warp(program: RationalProgram) -> RationalProgram:
    """MWP-CWP with the transactions of all of a warp's instructions taken for those of one, as was published."""
    wrong = [
        replace(s, value=s.value * sp.Symbol("uncoal_mem_insts", real=True))
        if isinstance(s, Assign) and s.name == "uncoal_per_mw"
        else s
        for s in program.body
    ]
    return replace(program, body=tuple(wrong))


def line(name: str, regrets: list[float], defaults: list[float]) -> str:
    """A row of the table."""
    r, d = np.array(regrets), np.array(defaults)
    mean = np.exp(np.log(r).mean())
    near, worse = int((r <= 1.05).sum()), int((r > 1.02 * d).sum())
    return f"| {name} | {mean:.3f} | {np.median(r):.3f} | {r.max():.2f} | {near} of {len(r)} | {worse} of {len(r)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--counters", type=Path, metavar="CSV")
    args = parser.parse_args()
    hardware = load_hardware(args.gpu)
    calibration = {n: v for n, (v, _, _) in CALIBRATION.items()}
    rows = rows_of(args.oracle)
    models: dict[tuple[str, str], tuple[RationalProgram, RationalProgram]] = {}
    for path in sorted(SAMPLES.glob("*.dag")):
        graph = api.load_graph(path)
        for site in open_sites(graph):
            op = op_of(graph, site)
            models[path.stem, site.name] = (op_program(graph.program, op), volume_program(graph.program, op))
    rows = [r for r in rows if (r.program, r.op) in models]
    machine = machine_values(hardware)
    regrets: dict[str, list[float]] = {"MWP-CWP": [], "S per warp": [], "volume": [], "default": []}
    for row in rows:
        mwp_cwp, volume = models[row.program, row.op]
        regrets["MWP-CWP"].append(row.regret(PartialEvaluator(mwp_cwp, machine | row.known())({})))
        regrets["S per warp"].append(row.regret(PartialEvaluator(per_warp(mwp_cwp), machine | row.known())({})))
        regrets["volume"].append(
            row.regret(PartialEvaluator(volume, hardware.parameters() | calibration | row.known())({}))
        )
        regrets["default"].append(default_regret(row))
    for two, title in ((True, "two-dimensional"), (False, "one-dimensional")):
        chosen = [i for i, r in enumerate(rows) if r.two_dimensional is two]
        print(f"\n| {title} | geometric mean | median | largest | within 5 % | over 2 % slower than the default |")
        print("|---|---|---|---|---|---|")
        for name, found in regrets.items():
            print(line(name, [found[i] for i in chosen], [regrets["default"][i] for i in chosen]))
    print("\n| kernel | rows | " + " | ".join(regrets) + " |\n" + "|---" * (2 + len(regrets)) + "|")
    for key in sorted(models):
        at = [i for i, r in enumerate(rows) if (r.program, r.op) == key]
        means = [np.exp(np.mean(np.log([found[i] for i in at]))) for found in regrets.values()]
        if at:
            print(f"| {' '.join(key)} | {len(at)} | " + " | ".join(f"{m:.3f}" for m in means) + " |")
    if args.grid:
        grid(rows, models, machine)
    if args.counters:
        counted(rows, regrets, machine, args.counters)
    return 0


def counted(rows: list[Row], regrets: dict[str, list[float]], machine: dict[str, Any], counters: Path) -> None:
    """The model over fitted counters beside the others, and how well the counts are fitted."""
    launches = read_counters(counters)
    programs, errors = {}, []
    for (program, name), found in launches.items():
        graph = api.load_graph(SAMPLES / f"{program}.dag")
        op = op_of(graph, next(u for u in open_sites(graph) if u.name == name))
        try:
            fits = fit_counts(graph.program, op, found)
        except UsageError as error:  # refused: too far off
            print(f"{program} {name}: {error.message}")
            continue
        errors.append((program, name, len(found), fits))
        programs[program, name] = counted_program(graph.program, op, fits)
    here = [i for i, r in enumerate(rows) if (r.program, r.op) in programs]
    fitted = {
        i: rows[i].regret(PartialEvaluator(programs[rows[i].program, rows[i].op], machine | rows[i].known())({}))
        for i in here
    }
    for two, title in ((True, "two-dimensional"), (False, "one-dimensional")):
        chosen = [i for i in here if rows[i].two_dimensional is two]
        print(f"\n| {title}, counted kernels | geometric mean | median | largest | within 5 % | over 2 % slower |")
        print("|---|---|---|---|---|---|")
        defaults = [regrets["default"][i] for i in chosen]
        print(line("MWP-CWP, fitted counters", [fitted[i] for i in chosen], defaults))
        for name, values in regrets.items():
            print(line(name, [values[i] for i in chosen], defaults))
    print(
        "\n| kernel | launches | count | depends on | degrees | median error | largest |\n|---|---|---|---|---|---|---|"
    )
    for program, name, number, fits in errors:
        for what, fit in fits.items():
            degrees, off = "/".join(map(str, fit.degrees)), fit.held_out
            names = ", ".join(fit.names) if any(fit.degrees) else "nothing"
            print(
                f"| {program} {name} | {number} | {what} | {names} | {degrees} | {off.median:.2%} | {off.largest:.1%} |"
            )


def grid(rows: list[Row], models: dict[tuple[str, str], Any], machine: dict[str, Any]) -> None:
    """The constants of GRID that do best on the two-dimensional rows, and leaving each program out in turn."""
    flat = [r for r in rows if r.two_dimensional]
    points = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    # All constants at once: they are a second axis.
    axis = {n: np.array([p[n] for p in points])[:, None] for n in GRID}
    logs = np.empty((len(flat), len(points)))
    for i, row in enumerate(flat):
        times = PartialEvaluator(models[row.program, row.op][0], machine | axis | row.known())({})
        times = np.broadcast_to(times, (len(points), len(row.seconds)))
        logs[i] = np.log(row.seconds[times.argmin(axis=1)] / row.seconds.min())
    best = int(logs.mean(axis=0).argmin())
    words = ", ".join(f"{n} {v:g}" for n, v in points[best].items())
    print(f"\nBest constants of the grid, seen: {np.exp(logs[:, best].mean()):.3f} ({words}).")
    programs = np.array([r.program for r in flat])
    unseen = np.empty(len(flat))
    for program in sorted(set(programs)):
        inside = programs == program
        unseen[inside] = logs[inside, int(logs[~inside].mean(axis=0).argmin())]
    print(f"Constants chosen on the other programs: {np.exp(unseen.mean()):.3f}, largest {np.exp(unseen.max()):.2f}.")
    print("\n| one constant changed | value: geometric mean |\n|---|---|")
    for name, values in GRID.items():
        at = [points.index({n: H200[n] for n in GRID} | {name: value}) for value in values]
        means = [f"{v:g}: {np.exp(logs[:, i].mean()):.3f}" for v, i in zip(values, at, strict=True)]
        print(f"| {name} | {', '.join(means)} |")


if __name__ == "__main__":
    sys.exit(main())
