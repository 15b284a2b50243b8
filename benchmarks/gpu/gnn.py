"""GCN and GraphSAGE on both devices: the plan of the network beside one device only and the best of all placements.

    PYTHONUNBUFFERED=1 DAGC_PLANETOID=FOLDER python -m benchmarks.gpu.gnn --out "$OUT" --time 170
    python -m benchmarks.gpu.gnn --summary FOLDER

Networks are timed from features on the host to the result there. FOLDER has pubmed.npz (samples/gnn/planetoid.py).

1. Programs: for each model and number of layers one runner library with all versions of all layers, side by side; the
   data of all graphs, also side by side. Times of transfers between host and device.
2. Training graphs: each version of each layer, resident on its device. Nothing else is learned from.
3. Test graphs, cheap ones first. The plan: `--method cost` predicts the seconds of each version of each layer, and
   `dagc.choice.placement` places the layers by these and the transfers, as a program with `select device with dp()`
   does at its start (there with a regressor for each layer; here with one for all layers of a model, since the graphs
   have 2 or 3). Then the whole network is timed: under the plan; on the GPU only and on the CPU only, with the
   predicted versions and with the measured best; under all placements of the layers, with the measured best version
   of each layer on each device. The best of these are timed again beside the others, by measurements that did not
   choose them.

--deep: networks as MLCD drew them (section V-E): 3000 to 24 000 nodes, 1 to 8 edges a node, 1000 to 5000 features,
hidden widths of 4 to 128, and DEPTHS layers. --summary then also prints after which layers the plans change the device,
as its figure 7 (there of DEEPEST layers with 3000 nodes and a width of 4, planned only), and how many transfers that
saves at how many networks, against the fastest device of each layer alone.

What is in FOLDER/gnn.json is not measured again. Results under the plan and on each device are compared with NumPy's.
--target host --first 2 rehearses it without a GPU, with small graphs instead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

from dagc.base.statistics import interval
from dagc.build.toolchain import TargetChoice, choose_target
from dagc.choice.feature import FeatureContext
from dagc.choice.placement import DEVICE, HOST, Problem, Solution, Transfer, Transfers, Value, place
from dagc.choice.selector import Selector
from dagc.emit import rows
from dagc.ir.choice import site_of
from dagc.ir.plan import answers_of, open_variants
from dagc.ir.program import Graph, KernelOp
from dagc.ir.sym import Var, evaluate, show
from dagc.ir.traversal import Row
from dagc.lab.launches import agree, middle
from dagc.measure.machine import machine_facts
from dagc.measure.runner import Runner, Table, world
from dagc.setup import read_scalars, run_setup
from dagc.space import Space
from dagc.stages.artifacts import OpenChoices, build_artifact, compile_traversal
from dagc.stages.options import CompileOptions
from dagc.stages.program import read
from dagc.study.files import revision
from dagc.study.placed import MovedValues, moves_text, transfers_here
from dagc.study.train import TrainingTable, expecting, train

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("gcn", "sage")
SIDES = {HOST: "cpu", DEVICE: "gpu"}
SMALL = "powerlaw(nodes = {nodes}, edges = 4, features = {features}, zeros = 0.5)"  # in a rehearsal
BATCH = 0.004  # seconds of one measurement of the whole network
SERIES, ROUNDS = 0.008, 3  # seconds of a series of launches of a layer; series at different times, at most
PATIENCE = 6.0  # seconds for all placements of one network

TRAINING = 40  # graphs
TEST = [  # (graph, layers, hidden)
    ("data/cora.npz", 2, 16),
    ("data/citeseer.npz", 2, 16),
    ("pubmed.npz", 2, 16),
    ("powerlaw(nodes = 1000, edges = 4, features = 16)", 3, 4),
    ("uniform(nodes = 1000, edges = 2, features = 1000)", 3, 16),
    ("data/cora.npz", 3, 64),
    ("data/citeseer.npz", 3, 16),
    ("powerlaw(nodes = 3000, edges = 4, features = 1000)", 3, 4),
    ("uniform(nodes = 3000, edges = 8, features = 2000)", 2, 128),
    ("pubmed.npz", 3, 64),
    ("uniform(nodes = 10_000, edges = 8, features = 64)", 3, 64),
    ("powerlaw(nodes = 10_000, edges = 1, features = 1000, zeros = 0.9)", 2, 16),
    ("uniform(nodes = 30_000, edges = 2, features = 600)", 3, 8),
    ("powerlaw(nodes = 100_000, edges = 4, features = 128)", 3, 16),
    ("uniform(nodes = 100_000, edges = 8, features = 16)", 2, 32),
    ("uniform(nodes = 300_000, edges = 4, features = 32)", 2, 16),
    ("powerlaw(nodes = 1_000_000, edges = 4, features = 16)", 2, 16),
    ("uniform(nodes = 1_000_000, edges = 2, features = 16)", 3, 8),
]

DEPTHS = (2, 3, 4, 6, 9)  # layers of deep networks; each is a program of its own, MLCD has 4 to 9
DEEPEST, NARROW = max(DEPTHS), 4
DEEP_TRAINING, DEEP_TEST = 16, 10  # networks of each model; and Cora and CiteSeer at two depths


def deep(count: int, seed: int) -> list[tuple[str, int, int]]:
    """Networks by the distribution of MLCD, small ones first."""
    draw, out = Random(seed), []
    for _ in range(count):
        nodes, features = 3000 * draw.randint(1, 8), 1000 * draw.randint(1, 5)
        family, zeros = draw.choice(("uniform", "powerlaw")), draw.choice((0.0, 0.5, 0.9, 0.99))
        text = f"{family}(nodes = {nodes}, edges = {draw.randint(1, 8)}, features = {features}, zeros = {zeros}"
        out.append((nodes * features, f"{text}, seed = {seed})", draw.choice(DEPTHS), 2 ** draw.randint(2, 7)))
    return [one[1:] for one in sorted(out)]


def deep_tests(seed: int = 11) -> list[tuple[str, int, int]]:
    draw = Random(seed)
    depths = (DEPTHS[0], DEPTHS[-1])
    real = [(f"data/{name}.npz", depth, 2 ** draw.randint(2, 7)) for name in ("cora", "citeseer") for depth in depths]
    every = [*real, *deep(DEEP_TEST, seed)]
    draw.shuffle(every)  # a time limit leaves out a random part
    return every


def drawn(count: int, seed: int = 9) -> list[tuple[str, int, int]]:
    """Training graphs whose nodes, edges, features, widths and zeros cover those of TEST; small ones first."""
    draw, out = Random(seed), []
    while len(out) < count:
        nodes, features = round(10 ** draw.uniform(3, 6)), round(10 ** draw.uniform(1.2, 3.6))
        if nodes * features <= 2e7:
            family, zeros = draw.choice(("uniform", "powerlaw")), draw.choice((0.0, 0.0, 0.5, 0.9, 0.99))
            text = f"{family}(nodes = {nodes}, edges = {draw.uniform(1, 8):.1f}, features = {features}, zeros = {zeros}"
            out.append(
                (nodes * features, f"{text}, seed = 9)", draw.choice((2, 3)), draw.choice((4, 8, 16, 32, 64, 128)))
            )
    return [one[1:] for one in sorted(out)]


@dataclass(frozen=True, slots=True)
class Case:
    model: str
    graph: str
    layers: int
    hidden: int

    @property
    def name(self) -> str:
        return f"{self.model} {self.graph} layers={self.layers} hidden={self.hidden}"

    @property
    def defines(self) -> dict[str, Any]:
        return {"graph": self.graph, "layers": self.layers, "hidden": self.hidden}


def cases(of: Sequence[tuple[str, int, int]], first: int = 0) -> list[Case]:
    """Of both models. `first`: so many, small graphs and 2 layers instead."""
    if first:
        small = (SMALL.format(nodes=100 + 30 * i + len(of), features=20 + 7 * i) for i in range(first))
        of = [(graph, 2, hidden) for graph, (_, _, hidden) in zip(small, of, strict=False)]
    return [Case(model, *one) for one in of for model in MODELS]


# ---- made ready -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Built:
    """`answers`: all versions of a layer in the order of their numbers; `exist`: those that this target has. `ops`:
    index and op of each layer."""

    library: Path
    rows: tuple[Row, ...]
    graph: Graph
    ops: tuple[tuple[int, KernelOp], ...]
    answers: tuple[str, ...]
    exist: tuple[str, ...]


def built(model: str, layers: int, chosen: TargetChoice, work: Path) -> Built:
    text, _notes = read(program_of(model), {"layers": layers}).on(chosen.target)
    graph = text.with_open_devices().graph()
    first = Space(graph).first()
    ops = tuple((i, one.op) for i, one in enumerate(graph.ops) if isinstance(one.op, KernelOp))
    opened = tuple(t for _, op in ops for t in open_variants(graph.program, op))
    folder = work / f"{model}-{layers}"
    options = CompileOptions(build=False, force=True)
    done = compile_traversal(graph, first, chosen, folder, options, open=OpenChoices(opened))
    library = build_artifact(folder, done.plan, "runner")
    op = ops[0][1]
    exist = next(d for d in opened if site_of(d.name) == op.site).values
    return Built(library, tuple(rows(first)), graph, ops, answers_of(graph.program, op), tuple(map(str, exist)))


def program_of(model: str) -> Path:
    return ROOT / f"samples/gnn/{model}.dag"


def written(case: Case, folder: Path) -> str:
    """Why the data of a case cannot be made: "" if they are in `folder`."""
    try:
        run_setup(read(program_of(case.model), case.defines).program(), program_of(case.model).parent, 1, 1, folder)
    except Exception as error:  # a file that is missing, no memory: the others go on
        return str(error).splitlines()[0]
    return ""


# ---- measured ---------------------------------------------------------------------------------------------------


class Network:
    """A case whose program is loaded."""

    def __init__(self, case: Case, program: Built, data: Path) -> None:
        self.case, self.program = case, program
        self.runner = Runner(program.library, data, world())
        self.table: Table = self.runner.prepare(program.rows)
        self.scalars = read_scalars(program.graph.program, data)
        self.bytes = [4.0 * self.scalars["n"] * self._width(layer) for layer in range(case.layers + 1)]

    def _width(self, layer: int) -> float:
        name = "inputs" if layer == 0 else "classes" if layer == self.case.layers else "units"
        return float(self.scalars[name])

    def close(self) -> None:
        self.runner.close()

    def set(self, versions: Sequence[str]) -> None:
        for (_, op), version in zip(self.program.ops, versions, strict=True):
            self.runner.set(f"{op.site}.variant", self.program.answers.index(version))

    def features(self, op: KernelOp) -> tuple[float, ...]:
        """What the kernel's `select` names, in its order."""
        context = FeatureContext(self.program.graph.program, op)
        found = [context.resolve(argument) for argument in context.asked]
        assert all(one is not None for one in found)
        return tuple(float(evaluate(one, self.scalars)) for one in found if one is not None)

    def time_ops(self) -> list[dict[str, float]]:
        """Seconds of each version of each layer, its data resident on its device."""
        out = []
        for index, op in self.program.ops:
            self.set([self.program.exist[0]] * self.case.layers)
            self.runner.reset()
            for before, _ in self.program.ops[: [i for i, _ in self.program.ops].index(index)]:
                self.runner.issue(before)
            self.runner.keep(index)
            series: dict[str, list[list[float]]] = {version: [] for version in self.program.exist}
            for _round in range(ROUNDS):
                for version, of in list(series.items()):
                    if len(of) > 1 and agree(of):
                        continue
                    wrong = self._time_op(index, op, version, of)
                    if wrong:
                        print(f"  {self.case.name}: {op.site} {version}: {wrong}", flush=True)
                        del series[version]
            out.append({version: median(middle(of)) for version, of in series.items()})
        return out

    def _time_op(self, index: int, op: KernelOp, version: str, series: list[list[float]]) -> str:
        """Add a series of launches: "" or why its results are wrong."""
        self.runner.set(f"{op.site}.variant", self.program.answers.index(version))
        wrong = self.runner.again(index, 1e-3)
        if not wrong:
            taken = self.runner.time(index, relative=0.02, seconds=SERIES, fewest=3, most=15, flush=0)
            series.append(list(map(float, taken)))
        return wrong

    def time_whole(self, versions: Sequence[str], seconds: float = BATCH) -> float:
        """Seconds of one run, host to host."""
        self.set(versions)
        self.runner.execute(self.table)  # scratch is allocated, libraries start
        return self.runner.measure(self.table, seconds)[0]

    def check(self, versions: Sequence[str]) -> str:
        self.set(versions)
        return self.runner.check(self.table)


def chain(handed_on: Sequence[float], seconds: Sequence[Mapping[int, float]], transfers: Transfers) -> Problem:
    """The chain of the layers: what they hand on, in bytes, from the host to the host."""
    last = len(seconds)
    values = [Value(None, (0,), transfers.moves(handed_on[0]))]
    for layer in range(1, last + 1):
        ends = (HOST,) if layer == last else ()
        readers = () if layer == last else (layer,)
        values.append(Value(layer - 1, readers, transfers.moves(handed_on[layer]), ends=ends))
    return Problem(tuple((at[HOST], at[DEVICE]) for at in seconds), tuple(values))


def best_of(times: Mapping[str, float]) -> dict[int, str]:
    """The fastest version on each side."""
    return {
        side: min((v for v in times if v.startswith(f"{name}.")), key=lambda v: times[v])
        for side, name in SIDES.items()
    }


def placements(layers: int, all_of: bool) -> Iterator[tuple[int, ...]]:
    """All, or those that change the side at most twice."""
    for one in product(SIDES, repeat=layers):
        if all_of or sum(a != b for a, b in pairwise(one)) <= 2:
            yield one


def chosen_by(best: Sequence[Mapping[int, str]], placement: Sequence[int]) -> tuple[str, ...]:
    return tuple(at[side] for at, side in zip(best, placement, strict=True))


def problem_of(layers: Sequence[Mapping[str, float]], handed_on: Sequence[float], transfers: Transfers) -> Problem:
    """By these seconds of each version of each layer."""
    return chain(handed_on, [{side: at[v] for side, v in best_of(at).items()} for at in layers], transfers)


def planned(layers: Sequence[Mapping[str, float]], handed_on: Sequence[float], transfers: Transfers) -> Solution:
    return place(problem_of(layers, handed_on, transfers))


def trained(records: Sequence[Mapping[str, Any]], model: str, exist: Sequence[str], names: Sequence[str]) -> Selector:
    """The predicted seconds of each version, in the mean, as `dagc tune` has them where ops are placed together: of the
    layers of all training graphs of a model."""
    found: dict[tuple[float, ...], list[Mapping[str, float]]] = {}  # layers of equal sizes count once
    for record in records:
        if record["model"] == model:
            for x, at in zip(record["features"], record["seconds"], strict=True):
                found.setdefault(tuple(x), []).append(at)
    times = tuple(
        {label: mean(at[v] for at in same) for label, v in enumerate(exist) if all(v in at for at in same)}
        for same in found.values()
    )
    table = TrainingTable.of(names, list(found), times)
    return expecting(train("cost", table), table, {label: v.partition(".")[0] for label, v in enumerate(exist)})


def measured(
    network: Network, selector: Selector, transfers: Transfers, random: Random, patience: float
) -> dict[str, Any]:
    """A test graph: the plan, one device only, and all placements."""
    case, exist = network.case, network.program.exist
    began = time.perf_counter()
    features = [network.features(op) for _, op in network.program.ops]
    predicted = [{exist[label]: s for label, s in selector.seconds(x).items()} for x in features]
    guess = [best_of(at) for at in predicted]
    solution = planned(predicted, network.bytes, transfers)
    planning = time.perf_counter() - began
    seconds = network.time_ops()
    best = [best_of(at) for at in seconds]
    sides = {"gpu": (DEVICE,) * case.layers, "cpu": (HOST,) * case.layers}
    named = {
        "plan": chosen_by(guess, solution.placement),
        **{f"{name}_only": chosen_by(guess, one) for name, one in sides.items()},
        **{f"{name}_only_best": chosen_by(best, one) for name, one in sides.items()},
    }
    wrong = {name: said for name in ("plan", "gpu_only", "cpu_only") if (said := network.check(named[name]))}
    slowest = max(network.time_whole(versions) for versions in named.values())
    all_of = 2**case.layers * 3 * max(BATCH, 2 * slowest) < patience
    every = {chosen_by(best, one): [] for one in placements(case.layers, all_of)}  # type: dict[tuple[str, ...], list[float]]
    for _round in range(3):
        for versions in random.sample(list(every), len(every)):
            every[versions].append(network.time_whole(versions))
    top = sorted(every, key=lambda v: median(every[v]))[:3]
    again = {versions: [] for versions in {*named.values(), *top}}  # type: dict[tuple[str, ...], list[float]]
    for _round in range(7):
        for versions in random.sample(sorted(again), len(again)):
            again[versions].append(network.time_whole(versions))
    final = {versions: median(t) for versions, t in again.items()}
    exhaustive = min(final, key=lambda v: final[v])
    return {
        **asdict(case), "name": case.name, "features": features, "seconds": seconds, "predicted": predicted,
        "expected_us": 1e6 * solution.seconds, "planning_us": 1e6 * planning, "all_placements": all_of,
        "tried": len(every), "placements_us": {"".join(v[0] for v in one): 1e6 * median(t) for one, t in every.items()},
        "wrong": wrong, "exhaustive": list(exhaustive), "exhaustive_us": 1e6 * final[exhaustive],
        "named": {n: {"versions": list(v), "us": 1e6 * final[v], "interval_us": [1e6 * x for x in interval(again[v])]}
                  for n, v in named.items()},
    }  # fmt: skip


# ---- summary ----------------------------------------------------------------------------------------------------


def summary(found: Mapping[str, Any]) -> str:
    """A line a test graph, then speed-ups (mean of ratios, and of sums) and PoIS by model."""
    lines = [f"{'':78} plan us  best us  GPU only  CPU only  (best versions)    placement"]
    for one in found["test"]:
        us = {name: at["us"] for name, at in one["named"].items()}
        side = "".join(v[0] for v in one["named"]["plan"]["versions"])
        ideal = "".join(v[0] for v in one["exhaustive"])
        lines.append(
            f"{one['name'][:77]:78}{us['plan']:8.1f} {one['exhaustive_us']:8.1f} {us['gpu_only']:9.1f} "
            f"{us['cpu_only']:9.1f} {us['gpu_only_best']:9.1f} {us['cpu_only_best']:9.1f}  {side}, best {ideal}"
            + (f"  WRONG {one['wrong']}" if one["wrong"] else "")
        )
    for model in MODELS:
        of = [one for one in found["test"] if one["model"] == model]
        if not of:
            continue
        plan = [one["named"]["plan"]["us"] for one in of]
        ideal = [one["exhaustive_us"] for one in of]
        lines.append(f"\n{model}, {len(of)} networks: PoIS {100 * sum(ideal) / sum(plan):.1f} %, mean of best / plan "
                     f"{100 * mean(b / p for b, p in zip(ideal, plan, strict=True)):.1f} %")  # fmt: skip
        for name in ("gpu_only", "cpu_only", "gpu_only_best", "cpu_only_best"):
            other = [one["named"][name]["us"] for one in of]
            ratios = [o / p for o, p in zip(other, plan, strict=True)]
            bound = mean(o / b for o, b in zip(other, ideal, strict=True))
            lines.append(f"  over {name:14} {mean(ratios):6.2f} (mean of ratios; least {min(ratios):.2f}), "
                         f"{sum(other) / sum(plan):6.2f} (of sums); the best placement {bound:.2f}")  # fmt: skip
        won = [one["name"] for one in of if one["named"]["cpu_only_best"]["us"] < one["named"]["gpu_only_best"]["us"]]
        lines.append(f"  the CPU alone is faster than the GPU alone at {len(won)}: {'; '.join(won) or '-'}")
    if found.get("left_out"):
        lines.append(f"\nleft out: {'; '.join(found['left_out'])}")
    return "\n".join(lines)


def transfers_of(found: Mapping[str, Any]) -> Transfers:
    """The transfers of a record."""
    return Transfers(*(Transfer(**found["transfers"][way]) for way in ("to_device", "to_host")))


def planned_again(found: Mapping[str, Any]) -> Iterator[str]:
    """Plans from what was recorded: by regressors that learn from the same graphs now, and by the measured seconds of
    all versions, as a regressor without errors would have them. The time of a plan is that of its placement with the
    best versions, and what its versions take more, each alone."""
    transfers = transfers_of(found)
    exist = sorted({version for one in found["train"] for at in one["seconds"] for version in at})
    names = [f"feature {i}" for i in range(len(found["train"][0]["features"][0]))]
    for model in MODELS:
        selector = trained(found["train"], model, exist, names)
        of = [one for one in found["test"] if one["model"] == model]
        learned = [[{exist[i]: s for i, s in selector.seconds(x).items()} for x in one["features"]] for one in of]
        for label, times in (("regressors of now", learned), ("the measured seconds", [one["seconds"] for one in of])):
            found_us = [replanned(one, at, transfers) for one, at in zip(of, times, strict=True)]
            over = [mean(gpu / plan for gpu, _, plan, _ in found_us), mean(cpu / plan for _, cpu, plan, _ in found_us)]
            yield (
                f"{model}, planned by {label}: over GPU only {over[0]:.3f}, over CPU only {over[1]:.2f}, PoIS "
                f"{100 * sum(f[3] for f in found_us) / sum(f[2] for f in found_us):.1f} %"
            )
        alone = [one["placements_us"]["g" * one["layers"]] / min(one["placements_us"].values()) for one in of]
        best = sum(ratio <= 1.02 for ratio in alone)
        yield f"{model}: the GPU alone is within 2 % of the best placement at {best} of {len(of)}"


def histogram(label: str, problems: Sequence[Problem], placements: Sequence[Sequence[int]]) -> str:
    """After which layers data change the device."""
    if not placements:
        return f"{label}: no networks"
    mixed = sum(len(set(one)) > 1 for one in placements)
    moves = [MovedValues.of(of, tuple(at), range(len(of.values))) for of, at in zip(problems, placements, strict=True)]
    head = f"{label}, {len(placements)} networks, {mixed} on both devices"
    return f"{head}: transfers after layer {moves_text(moves)}"


def transfers_planned(found: Mapping[str, Any]) -> Iterator[str]:
    """Figure 7 of MLCD: of the networks that were measured (the plan, the best placement), and of the grid of its
    figure, planned by what was learned."""
    transfers = transfers_of(found)
    exist = sorted({version for one in found["train"] for at in one["seconds"] for version in at})
    number, count = {"c": HOST, "g": DEVICE}, len(found["train"][0]["features"][0])
    for model in MODELS:
        of = [one for one in found["test"] if one["model"] == model]
        for label, versions, seconds in (
            ("planned", [one["named"]["plan"]["versions"] for one in of], [one["predicted"] for one in of]),
            ("best", [one["exhaustive"] for one in of], [one["seconds"] for one in of]),
        ):
            problems = [
                problem_of(at, handed_on_by(one["features"]), transfers) for one, at in zip(of, seconds, strict=True)
            ]
            sides = [[number[v[0]] for v in at] for at in versions]
            yield histogram(f"{model}, measured, {label}", problems, sides)
        grid = [grid_layers(model, 3000, e, f) for f, e in product(range(1000, 5001, 1000), range(1, 9))]
        if count != len(grid[0][0]):
            continue  # a record of a sample with other features
        selector = trained(found["train"], model, exist, [f"feature {i}" for i in range(count)])
        problems = []
        for layers in grid:
            times = [{exist[i]: s for i, s in selector.seconds(x).items()} for x in layers]
            problems.append(problem_of(times, handed_on_by(layers), transfers))
        plans = [place(one).placement for one in problems]
        yield histogram(f"{model}, {DEEPEST} layers of {NARROW}, 3000 nodes, planned", problems, plans)


def handed_on_by(layers: Sequence[Sequence[float]]) -> list[float]:
    """Bytes before and after each layer, by their features: nodes, edges, inputs, outputs, ..."""
    return [*(4 * x[0] * x[2] for x in layers), 4 * layers[-1][0] * layers[-1][3]]


def grid_layers(model: str, nodes: int, edges: int, features: int) -> list[tuple[float, ...]]:
    """The features of the layers of a random graph, in the order of the kernel's `select`, without zeros in the first.
    GCN adds an edge from each node to itself."""
    own, nnz = int(model == "sage"), nodes * (edges + (model == "gcn"))
    widths = [features, *[NARROW] * (DEEPEST - 1), 8]
    out = []
    for layer, (K, F) in enumerate(pairwise(widths)):
        zeros, transform = 0.5 * (layer > 0), nodes * K * (1 + own) * F
        of = (nodes, nnz, K, F, zeros, transform, (1 - zeros) * transform, nnz * F, nnz * K, nodes * K, nodes * F)
        out.append((*map(float, of), float(layer < DEEPEST - 1)))
    return out


def replanned(one: Mapping[str, Any], times: Sequence[Mapping[str, float]], transfers: Transfers) -> tuple[float, ...]:
    """Microseconds on the GPU only, on the CPU only, under the plan by these times, and of the best placement."""
    features = one["features"]
    guess, measured_best = [best_of(at) for at in times], [best_of(at) for at in one["seconds"]]

    def took(placement: Sequence[int]) -> float:
        pairs = zip(one["seconds"], chosen_by(guess, placement), chosen_by(measured_best, placement), strict=True)
        return one["placements_us"]["".join(SIDES[s][0] for s in placement)] + 1e6 * sum(
            at[v] - at[b] for at, v, b in pairs
        )

    count = len(features)
    plan = planned(times, handed_on_by(features), transfers).placement
    return took((DEVICE,) * count), took((HOST,) * count), took(plan), min(one["placements_us"].values())


# ---- command ----------------------------------------------------------------------------------------------------


def kept(file: Path) -> dict[str, Any]:
    if file.exists():
        return json.loads(file.read_text())  # type: ignore[no-any-return]
    return {"train": [], "test": [], "transfers": None, "left_out": []}


def keep(file: Path, found: Mapping[str, Any]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1) + "\n")
    os.replace(part, file)


def compiled(todo: Sequence[Case], chosen: TargetChoice, work: Path, jobs: int) -> None:
    """All programs, which the build cache has afterwards."""
    with ThreadPoolExecutor(jobs) as threads:
        running = [threads.submit(built, *w, chosen, work) for w in sorted({(c.model, c.layers) for c in todo})]
        for job in running:
            job.result()


def prepared(
    todo: Sequence[Case], chosen: TargetChoice, work: Path, jobs: int
) -> tuple[dict[tuple[str, int], Built], dict[Case, tuple[Path, str]]]:
    """Programs and data, side by side. Processes are forked before MPI and CUDA start."""
    wanted = sorted({(case.model, case.layers) for case in todo}, key=lambda w: -w[1])
    folders = {case: work / f"data-{number}" for number, case in enumerate(todo)}
    with ProcessPoolExecutor(jobs) as processes, ThreadPoolExecutor(jobs) as threads:
        data = {case: processes.submit(written, case, folder) for case, folder in folders.items()}
        programs = {w: threads.submit(built, *w, chosen, work) for w in wanted}
        return (
            {w: job.result() for w, job in programs.items()},
            {case: (folders[case], job.result()) for case, job in data.items()},
        )


def run(args: argparse.Namespace) -> int:
    end, file, random = time.monotonic() + args.time, args.out / "gnn.json", Random(1)
    args.out.mkdir(parents=True, exist_ok=True)
    found, chosen = kept(file), choose_target(args.target, args.arch)
    done = {one["name"] for kind in ("train", "test") for one in found[kind]}
    train_graphs = deep(DEEP_TRAINING, 10) if args.deep else drawn(TRAINING)
    test_graphs = deep_tests() if args.deep else TEST
    left = [
        [c for c in cases(of, first) if c.name not in done and not (args.skip and args.skip in c.name)]
        for of, first in ((train_graphs, args.first and 6), (test_graphs, args.first))
    ]
    train_on, test_at = left
    work = args.out / "work"
    if args.compile:
        compiled([*train_on, *test_at], chosen, work, args.jobs)
        shutil.rmtree(work)
        return 0
    programs, data = prepared([*train_on, *test_at], chosen, work, args.jobs)
    print(
        f"{len(programs)} programs, {len(data)} sets of data: {args.time - (end - time.monotonic()):.0f} s", flush=True
    )
    found["left_out"] = [f"{case.name}: {why}" for case, (_, why) in data.items() if why]
    if found["transfers"] is None:
        found["transfers"] = asdict(transfers_here(chosen.target.value, chosen.arch))
    found["machine"], found["revision"] = asdict(machine_facts(chosen.target.value, chosen.arch)), revision(ROOT)
    found["threads"] = os.environ.get("OMP_NUM_THREADS", f"{len(os.sched_getaffinity(0))} cores")
    transfers = transfers_of(found)
    keep(file, found)
    selectors: dict[str, Selector] = {}
    for case in (*train_on, *test_at):
        folder, why = data[case]
        if why or time.monotonic() > end:
            continue
        began, program = time.monotonic(), programs[case.model, case.layers]
        network = Network(case, program, folder)
        if case in train_on:
            features = [network.features(op) for _, op in program.ops]
            found["train"].append({**asdict(case), "name": case.name, "features": features,
                                   "seconds": network.time_ops()})  # fmt: skip
        else:
            if case.model not in selectors:
                context = FeatureContext(program.graph.program, program.ops[0][1])
                names = [a.name if isinstance(a, Var) else show(a) for a in context.asked]
                selectors[case.model] = trained(found["train"], case.model, program.exist, names)
            found["test"].append(measured(network, selectors[case.model], transfers, random, args.patience))
        network.close()
        shutil.rmtree(folder)
        keep(file, found)
        print(f"{time.monotonic() - began:5.1f} s  {case.name}", flush=True)
    shutil.rmtree(work, ignore_errors=True)
    missing = [
        c.name for c in (*train_on, *test_at) if c.name not in {o["name"] for o in (*found["train"], *found["test"])}
    ]
    if missing:
        print(f"not measured: {len(missing)}; the same command continues")
    print(summary(found))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of gnn.json")
    parser.add_argument("--time", type=float, default=170.0, help="seconds after which no further graph is begun (170)")
    parser.add_argument("--target", default=None, choices=("cuda", "host"))
    parser.add_argument("--arch", default=None)
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2))
    parser.add_argument("--compile", action="store_true", help="only fill the build cache")
    parser.add_argument("--first", type=int, default=0, help="only so many test graphs (0: all)")
    parser.add_argument("--deep", action="store_true", help="networks as MLCD drew them")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds for all placements of a network")
    parser.add_argument("--skip", help="leave out the graphs whose line has this text")
    parser.add_argument("--summary", type=Path, help="only print what FOLDER/gnn.json says, and plan again")
    args = parser.parse_args()
    if args.summary is not None:
        found = kept(args.summary / "gnn.json")
        print("\n".join((summary(found), "", *planned_again(found), *transfers_planned(found))))
        return 0
    if args.out is None:
        parser.error("--out is missing")
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
