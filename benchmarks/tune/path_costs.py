"""The cost of three sets of features: all, those of a tree, and those on the path of an input through the tree.

    python -m benchmarks.tune.path_costs TUNED.db[.xz] PROGRAM.dag

Trains `tree` on the inputs that a tuned file learned from. Prints, in us at the median of all its inputs and at 90 %
of them (in brackets: calls of the default), what the code features take that the `select` names, that the tree names
anywhere, and that it names on the path of an input. Times are those of the file, each feature measured alone: a
program that waits for several together takes less for all, and one that needs them one after the other does not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import quantiles

from benchmarks.gpu.beside_answer import unpacked
from benchmarks.gpu.variants import Row, Table, tables
from dagc.choice import nodes
from dagc.choice.learners.tree import TreeSelector
from dagc.ir.program import CodeText, Feature, KernelOp
from dagc.ir.sym import free
from dagc.stages.program import load
from dagc.study.train import TrainingTable, trained


def named(node: nodes.Node) -> Iterator[int]:
    """The features of all splits, by number."""
    if isinstance(node, nodes.Split):
        yield node.index
        yield from named(node.low)
        yield from named(node.high)


def on_path(node: nodes.Node, x: Sequence[float]) -> Iterator[int]:
    """The features of the splits that a vector passes."""
    while isinstance(node, nodes.Split):
        yield node.index
        node = node.low if x[node.index] <= node.most else node.high


def code_features(name: str, known: Mapping[str, Feature]) -> frozenset[str]:
    """Those that a feature needs, itself included."""
    feature = known.get(name)
    if feature is None:
        return frozenset()  # a scalar
    if isinstance(feature.value, CodeText):
        return frozenset((name,))
    return frozenset().union(*(code_features(one, known) for one in free(feature.value)))


def line(title: str, seconds: Sequence[float], default: Sequence[float]) -> str:
    shares = [s / d for s, d in zip(seconds, default, strict=True)]
    (middle, high), (calls, most) = ((quantiles(of, n=10)[4], quantiles(of, n=10)[8]) for of in (seconds, shares))
    return f"  {title:24} {1e6 * middle:8.1f} ({calls:.1f})   90 %: {1e6 * high:8.1f} ({most:.1f})"


def report(table: Table, known: Mapping[str, Feature]) -> list[str]:
    times, vectors = [row.times for row in table.train], [row.vector for row in table.train]
    selector = trained(TrainingTable.of(table.features, vectors, times, table.tolerance), "tree")
    assert isinstance(selector, TreeSelector)
    needs = [code_features(name, known) for name in selector.data]
    rows = (*table.train, *table.test)

    def cost(row: Row, numbers: Collection[int]) -> float:
        every = frozenset[str]().union(*(needs[i] for i in numbers))
        return sum(row.facts.seconds.get(f"feature.{table.op}.{name}", 0.0) for name in every)

    default = [row.times[0] for row in rows]
    anywhere = frozenset(named(selector.root))
    sets: dict[str, Callable[[Row], Collection[int]]] = {
        "named by the select": lambda row: range(len(needs)),
        "named by the tree": lambda row: anywhere,
        "on the path of the input": lambda row: frozenset(on_path(selector.root, row.vector)),
    }
    lines = [line(title, [cost(row, of(row)) for row in rows], default) for title, of in sets.items()]
    return [f"{table.op}: {selector.text}, {len(rows)} inputs", *lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", type=Path)
    parser.add_argument("program", type=Path)
    args = parser.parse_args()
    program = load(args.program)
    kernels = {op.name: op.kernel for op in program.ops if isinstance(op, KernelOp)}
    for table in tables(unpacked(args.tuned), args.program):
        kernel = next(k for k in program.kernels if k.name == kernels[table.op])
        print("\n".join(report(table, {f.name: f for f in kernel.features})))


if __name__ == "__main__":
    main()
