"""The inputs of `benchmarks.gpu.devices`: drawn by the distributions of MLCD (Cao et al., section IV-B), fewer of those
that take long, in strata by their work.

MLCD measured every combination of values that grow geometrically; here each value is log-uniform in the same range, so
that a draw has the same distribution. Of each stratum so many inputs are drawn that the error of a weighted mean is
least for the time (Neyman's allocation): share / sqrt(seconds of an input), and a few at least. An input of a stratum
then stands for share / number of what all of MLCD's inputs would give.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagc.choice.types import Case
from dagc.stages.program import read
from dagc.study.cases import Draws

ROOT = Path(__file__).resolve().parents[2]
OF_GEMM, OF_SQUARES = 160_380, 3_140  # inputs of MLCD
POOL = 20_000  # draws from which the shares of the strata are known
MOST = 0.1  # of the time: an input that takes longer is left out
LEAST, PART = 8, 0.08  # inputs of a stratum, if they take no more than this part of the time; else fewer, but one
SQUARES = "gemm-steps"  # the range of the inputs that MLCD adds for GEMM*
STEPS = range(50, 31_351, 100)  # sizes of GEMM*
SHARES = (0.60, 0.70, 0.80, 0.90, 0.91, 0.93, 0.95, 0.97, 0.99, 0.995)  # of zeros

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Range:
    """The inputs of a kernel.

    `most`: for the param of this name of the sample, so that no draw is refused. `work`: of an input, by its params;
    `bounds`: where one stratum ends and the next begins. `seconds`: about what an input takes to set up and to measure.
    `steps`: squares of these sizes in place of draws.
    """

    most: float
    work: Callable[[Params], float]
    bounds: tuple[float, ...]
    seconds: Callable[[Params], float]
    steps: Sequence[int] = field(default=())

    def stratum(self, params: Params) -> int:
        return sum(self.work(params) >= bound for bound in self.bounds)


def _gemm(p: Params) -> float:
    return float(p["m"]) * p["n"] * p["k"]


def _gemm_seconds(p: Params) -> float:
    elements = p["m"] * p["k"] + p["k"] * p["n"] + p["m"] * p["n"]
    return 0.15 + elements / 7e7 + 30 * _gemm(p) / 4e13


def _pairs(p: Params) -> float:
    return float(p["bodies"]) ** 2 * p["count"]


def _edges(p: Params) -> float:
    return float(p["nodes"]) * p["ratio"]


_OF_GEMM = Range(4e13, _gemm, (1e4, 1e6, 1e8, 1e9, 1e10, 1e11, 1e12), _gemm_seconds)
RANGES = {
    "gemm": _OF_GEMM,
    "gemm-relu": _OF_GEMM,
    SQUARES: Range(4e13, _gemm, (1e8, 1e9, 1e10, 1e11, 1e12, 1e13), _gemm_seconds, STEPS),
    "pagerank": Range(1e7, _edges, (1e4, 3e4, 1e5, 3e5, 1e6), lambda p: 0.2 + 2e-7 * _edges(p)),
    "nbody": Range(6e12, _pairs, (1e4, 1e6, 1e8, 1e9, 1e10, 1e11, 1e12), lambda p: 0.15 + _pairs(p) / 2.5e11),
    "kmotif": Range(1e8, _edges, (1e4, 1e5, 1e6, 4e6, 1.6e7, 4e7), lambda p: 0.1 + 3.5e-7 * _edges(p)),
}


def params_of(text: str) -> dict[str, float]:
    """`k=352 m=105 share=0.97` as numbers."""
    return {name: float(value) for name, _, value in (word.partition("=") for word in text.split())}


def pool(of: Range, program: Path, defines: Params, seed: int) -> list[Case]:
    """Inputs by the distribution of MLCD, all different, in random order."""
    if of.steps:
        squares = [Case.of({"m": n, "n": n, "k": n, "share": share}) for n in of.steps for share in SHARES]
        random.Random(f"{seed} squares").shuffle(squares)
        return squares
    return list(Draws(read(program, defines).program(), seed, tuple(defines)).take(POOL))


def strata(of: Range, drawn: Sequence[Case]) -> list[list[Case]]:
    out: list[list[Case]] = [[] for _ in range(len(of.bounds) + 1)]
    for case in drawn:
        out[of.stratum(dict(case.params))].append(case)
    return out


def allotted(
    of: Range, drawn: Sequence[Case], share: float, seconds: float, known: Collection[Case] = ()
) -> list[Case]:
    """Inputs that take about this `share` of `seconds` together, `known` ones not again."""
    drawn = [case for case in drawn if of.seconds(dict(case.params)) <= MOST * seconds]
    seconds *= share
    parts = [part for part in strata(of, drawn) if part]
    cost = [sum(of.seconds(dict(case.params)) for case in part) / len(part) for part in parts]
    wanted = [len(part) / len(drawn) / math.sqrt(each) for part, each in zip(parts, cost, strict=True)]
    scale = seconds / sum(n * each for n, each in zip(wanted, cost, strict=True))
    had = [sum(case in known for case in part) for part in parts]
    out = []
    for part, number, before, each in zip(parts, wanted, had, cost, strict=True):
        fresh = [case for case in part if case not in known]
        least = max(1, min(LEAST, int(PART * seconds / each)))
        out += fresh[: max(least - before, round(scale * number))]
    return out


def weights(of: Range, texts: Sequence[str], drawn: Sequence[Case]) -> list[float]:
    """For how much of MLCD's inputs each of these stands; they add up to 1."""
    shares = [len(part) / len(drawn) for part in strata(of, drawn)]
    places = [of.stratum(params_of(text)) for text in texts]
    number = Counter(places)
    out = [shares[place] / number[place] for place in places]
    return [weight / sum(out) for weight in out]


def is_square(text: str) -> bool:
    """Whether an input is one of GEMM*'s."""
    p = params_of(text)
    return p.get("m") == p.get("n") == p.get("k") and p.get("m") in STEPS


def weights_with_squares(texts: Sequence[str], drawn: Sequence[Case], squares: Sequence[Case]) -> list[float]:
    """The same for GEMM*: all inputs of GEMM, and the squares."""
    own = [text for text in texts if not is_square(text)], [text for text in texts if is_square(text)]
    parts = zip((OF_GEMM, OF_SQUARES), (RANGES["gemm"], RANGES[SQUARES]), own, (drawn, squares), strict=True)
    by = {t: n * w for n, of, some, pool in parts for t, w in zip(some, weights(of, some, pool), strict=True)}
    return [by[text] / sum(by.values()) for text in texts]
