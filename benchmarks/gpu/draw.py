"""A list of inputs for `dagc tune --inputs`, drawn at random from the parameters of a sample's generators, or of files.

    python -m benchmarks.gpu.draw bfs|histogram|sort|spmv NUMBER [--seed 1]
    python -m benchmarks.gpu.draw bfs FOLDER...           each graph of the folders, as far as it is one
    python -m benchmarks.gpu.draw histogram FOLDER NUMBER  windows of the images of the folder, each as often

Families come in turn, in a random order of each round, and sizes are drawn in proportion to 1 / size, so that the first
inputs of a list are a sample of all. The same command gives the same list. `SEED` is the first seed of the inputs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dagc.matrix_market import checked

SEED = 1_000_000  # no list of the samples has one as large


@dataclass(frozen=True, slots=True)
class Over:
    """Numbers from `low` to `high`, in proportion to 1 / number. Whole ones where both are."""

    low: float
    high: float

    def draw(self, random: Random) -> object:
        drawn = math.exp(random.uniform(math.log(self.low), math.log(self.high)))
        return round(drawn) if isinstance(self.low, int) else float(f"{drawn:.3g}")


@dataclass(frozen=True, slots=True)
class Of:
    """One of some values."""

    values: tuple[object, ...]

    def draw(self, random: Random) -> object:
        return random.choice(self.values)


Ranges = Mapping[str, Over | Of]
EVEN = Of((2, 4, 6, 8, 12, 16, 24, 32, 48))
KEYS: Ranges = {"n": Over(30_000, 4_000_000), "bits": Of((32, 64))}
VALUES: Ranges = {"n": Over(20_000, 20_000_000)}
ROWS: Ranges = {"rows": Over(1500, 800_000)}

SORT: Mapping[str, Ranges] = {
    name: KEYS | more
    for name, more in {
        "uniform": {}, "normal": {}, "exponential": {}, "ascending": {}, "reversed": {}, "organ": {}, "walk": {},
        "heaped": {}, "bitreversed": {}, "golden": {},
        "swapped": {"share": Over(1e-4, 0.3)}, "inserted": {"share": Over(1e-4, 0.1)},
        "appended": {"share": Over(1e-3, 0.3)}, "rotated": {"share": Over(0.01, 0.9)},
        "partly": {"share": Over(0.1, 0.95)}, "sparse": {"share": Over(1e-3, 0.5)},
        "jittered": {"distance": Over(3, 100_000)}, "runs": {"number": Over(2, 200)},
        "descents": {"number": Over(2, 2000)}, "interleaved": {"number": Over(2, 64)},
        "clusters": {"number": Over(5, 2000)}, "waves": {"length": Over(100, 100_000)},
        "turned": {"length": Over(10, 100_000)}, "shuffled": {"length": Over(100, 100_000)},
        "sawtooth": {"teeth": Over(2, 500)}, "equal": {"different": Over(2, 10_000)},
        "zipf": {"exponent": Over(1.2, 3.0)}, "lognormal": {"deviation": Over(0.5, 6.0)},
        "rounded": {"digits": Of((0, 1, 2, 3, 4))}, "leveled": {"first": Over(50, 20_000)},
        "delayed": {"share": Over(0.005, 0.5), "distance": Over(20, 100_000)},
        "transposed": {"columns": Over(2, 2000)}, "tides": {"periods": Over(2.0, 500.0), "noise": Of((0.0, 0.05))},
    }.items()
}  # fmt: skip
HISTOGRAM: Mapping[str, Ranges] = {
    name: VALUES | more
    for name, more in {
        "uniform": {}, "constant": {}, "ascending": {}, "normal": {"deviation": Over(0.5, 60.0)},
        "zipf": {"exponent": Over(1.0, 3.0)}, "two": {"share": Over(0.5, 0.99)}, "blocks": {"length": Over(2, 1000)},
        "walk": {"step": Of((1, 2, 3, 5, 8, 16))}, "mixture": {"share": Over(0.1, 0.95)},
    }.items()
}  # fmt: skip
BFS: Mapping[str, Ranges] = {
    "rmat": {"scale": Of(tuple(range(12, 20))), "degree": EVEN, "directed": Of((False, True))},
    "uniform": {"n": Over(5000, 700_000), "degree": EVEN}, "regular": {"n": Over(5000, 700_000), "degree": EVEN},
    "powerlaw": {"n": Over(5000, 700_000), "degree": EVEN, "exponent": Over(2.1, 3.0)},
    "smallworld": {"n": Over(5000, 400_000), "degree": EVEN, "rewired": Over(0.005, 0.5)},
    "grid": {"rows": Over(50, 700), "columns": Over(50, 700), "kept": Of((1.0, 0.9, 0.75))},
    "torus": {"rows": Over(50, 600), "columns": Over(50, 600)},
    "roads": {"rows": Over(40, 300), "columns": Over(40, 300)},
    "geometric": {"n": Over(10_000, 300_000), "degree": Over(8, 40)},
    "star": {"n": Over(10_000, 2_000_000), "hubs": Over(1, 50)},
    "tree": {"n": Over(10_000, 2_000_000), "children": Of((2, 3, 4, 8, 16))},
    "recursive": {"n": Over(10_000, 1_000_000)},
    "preferential": {"n": Over(10_000, 700_000), "degree": EVEN},
    "communities": {"number": Over(10, 400), "size": Over(50, 1000), "degree": EVEN, "outside": Over(0.001, 0.2)},
    "layers": {"depth": Over(5, 300), "width": Over(20, 2000), "degree": Of((2, 4, 8))},
    "bipartite": {"left": Over(5000, 300_000), "right": Over(100, 100_000), "degree": Of((2, 4, 8, 16))},
    "windmill": {"number": Over(10, 2000), "size": Over(3, 60)}, "hypercube": {"dimensions": Of(tuple(range(10, 18)))},
    "window": {"n": Over(10_000, 200_000), "degree": EVEN, "reach": Over(300, 50_000)},
    "visits": {"users": Over(5000, 200_000), "items": Over(100, 50_000), "degree": Of((2, 4, 8, 16))},
    "shortcuts": {"rows": Over(50, 600), "columns": Over(50, 600), "number": Over(10, 10_000)},
    "delaunay": {"n": Over(10_000, 200_000)}, "nearest": {"n": Over(10_000, 150_000), "neighbours": Of((4, 8, 16))},
    "citations": {"n": Over(10_000, 500_000), "degree": Of((3, 6, 12)), "recent": Over(0.001, 0.2)},
    "stars": {"number": Over(100, 20_000), "size": Over(5, 200), "degree": Of((2, 4, 8))},
    "box": {"width": Over(8, 60), "length": Over(20, 100)},
}  # fmt: skip
SPMV: Mapping[str, Ranges] = {
    "stencil": {"points": Of((5, 9)), "side": Over(40, 900)}, "dense_band": ROWS | {"half": Over(1, 30)},
    "band": ROWS | {"half": Over(100, 1400), "per_row": Over(3, 40)}, "uniform": ROWS | {"per_row": Over(3, 30)},
    "regular": ROWS | {"per_row": Over(3, 30)}, "blocks": {"rows": Over(2000, 200_000), "size": Over(2, 48)},
    "fem": {"side": Over(6, 24)}, "zipf": {"rows": Over(2000, 300_000), "mean": Over(3, 30)},
    "rmat": {"scale": Of(tuple(range(11, 18))), "edges": Of((4, 8, 16))}, "arrow": ROWS,
    "circuit": ROWS | {"per_row": Over(3, 8)}, "two_lengths": ROWS | {"short": Over(1, 6), "long": Over(20, 200)},
    "smallworld": ROWS | {"near": Over(1, 10)}, "triangular": {"rows": Over(2000, 300_000), "per_row": Over(3, 30)},
    "terms": ROWS | {"mean": Over(5, 60), "cols": Over(1000, 100_000)}, "tree": ROWS,
}  # fmt: skip
SAMPLES = {"sort": SORT, "histogram": HISTOGRAM, "bfs": BFS, "spmv": SPMV}


def drawn(families: Mapping[str, Ranges], number: int, seed: int) -> Iterator[str]:
    """`number` calls of generators."""
    random = Random(seed)
    order: list[str] = []
    for at in range(number):
        if not order:
            order = random.sample(sorted(families), len(families))
        family = order.pop()
        values = {name: over.draw(random) for name, over in families[family].items()} | {"seed": SEED * seed + at}
        yield call(family, values)


def call(family: str, values: Mapping[str, object]) -> str:
    return f"{family}({', '.join(f'{name} = {value!r}' for name, value in values.items())})".replace("'", '"')


def windows(folder: Path, number: int, seed: int) -> Iterator[str]:
    """Rectangles of the images of a folder, of all of their channels."""
    random = Random(seed)
    images = sorted(path for path in folder.resolve().iterdir() if path.is_file())
    for at in range(number):
        if at % len(images) == 0:
            random.shuffle(images)
        turn = at // len(images)
        part = 1.0 if turn < 4 else Over(0.2, 0.95).draw(random)  # the four channels as a whole first
        values = {"image": str(images[at % len(images)]), "channel": turn % 4, "part": part, "seed": SEED * seed + at}
        yield call("window", values)


def graphs(folder: Path) -> Iterator[str]:
    """The Matrix Market files that are graphs: square, with numbers that are not complex."""
    for path in sorted(folder.resolve().glob("*.mtx")):
        header = checked(str(path))
        if header.rows == header.columns and header.field != "complex" and header.symmetry in ("general", "symmetric"):
            yield str(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sample", choices=SAMPLES)
    parser.add_argument("what", nargs="+", metavar="NUMBER|FOLDER")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    first, *rest = args.what
    if first.isdigit():
        lines = drawn(SAMPLES[args.sample], int(first), args.seed)
    elif args.sample == "histogram" and len(rest) == 1:
        lines = windows(Path(first), int(rest[0]), args.seed)
    elif args.sample == "bfs":
        lines = (line for folder in args.what for line in graphs(Path(folder)))
    else:
        parser.error(f"{args.sample} has no generator for {' '.join(args.what)}")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
