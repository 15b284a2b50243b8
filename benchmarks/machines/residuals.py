"""What else could predict the error of the simulation, on halo exchanges with effects of what runs next to what.

    python -m benchmarks.machines.residuals [--only 1002 1012 1022 1032] [--markdown F]

A default search of 150 measurements teaches; some 290 implementations that it did not measure judge, by their exact
times: those that it expects to be fastest, and neighbours of the ten fastest that it measured. Compared are the model
of the search, with other correlation lengths, with a smaller error of the simulation, and with bits for what is issued
after what on a stream and on the GPU; the fitted simulation alone; and a linear model (weight decay by leave-one-out)
and a random forest of the logarithm of its error, on the same bits. *Error*: standard deviation of the logarithm of
the prediction over the truth; *rank*: Spearman's; *loss*: of the five that are predicted to be fastest, the median.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.machines.evaluate import drawn, strategy_of
from benchmarks.machines.family import Drawn
from dagc.base.sample import Sample
from dagc.lab.candidate import Candidate
from dagc.lab.model import estimate
from dagc.lab.model.features import CandidateFeatures

MEASURED, LIKELY, NEAR, FASTEST, PICKED = 150, 60, 240, 10, 5
DECAYS = (1e-3, 1e-2, 0.1, 1.0, 10.0)
SMALLER = (0.015, 0.03, *estimate.SIGNALS)
Measured = list[tuple[Candidate, float]]  # a candidate and a time in seconds


class Neighbours(CandidateFeatures):
    """Also which op is issued next after which on its stream, and which GPU op after which in all."""

    def __init__(self, spaces: Sequence[Any]) -> None:
        super().__init__(spaces)
        on_gpu = sum(op.gpu for op in spaces[0].graph.ops)
        self.number += 2 * on_gpu  # of the bits that are 1, at most so many

    def of(self, candidates: Sequence[Candidate]) -> Any:
        after = np.zeros((len(candidates), 2, self._ops, self._ops), dtype=np.float32)
        for row, candidate in enumerate(candidates):
            last: dict[int, int] = {}
            for entry in candidate.traversal.entries:
                if entry.op is None or entry.stream is None:
                    continue
                op = int(self._columns[candidate.space][entry.op])
                for kind, key in ((0, entry.stream), (1, -1)):
                    if key in last:
                        after[row, kind, last[key], op] = 1
                    last[key] = op
        return np.concatenate([super().of(candidates), after.reshape(len(candidates), -1)], axis=1)


def data(machine: Drawn) -> tuple[Measured, Measured]:
    """What a search measured, with noise, and what judges, without."""
    strategy, factors = strategy_of("default", machine.domain, 0), machine.noise.factors(Random(1000 * machine.seed))
    measured: Measured = []
    for _ in range(MEASURED):
        candidate = strategy.propose()
        measured.append((candidate, machine.truth(candidate) * next(factors)))
        strategy.observe(candidate, Sample(measured[-1][1]))
    random, seen = Random(5), {candidate for candidate, _ in measured}
    fastest = sorted(seen, key=machine.truth)[:FASTEST]
    model = strategy._model()
    others = [model.candidates[int(row)] for row in np.argsort(model.estimate()[0])[:LIKELY]]
    for _ in range(NEAR):
        near = machine.domain.near(random.choice(fastest), random)
        others.append(machine.domain.near(near, random) if random.random() < 0.5 else near)
    return measured, [(c, machine.truth(c)) for c in dict.fromkeys(others) if c not in seen]


def fitted(machine: Drawn, measured: Measured, test: Measured) -> Any:
    """The model of the search after these measurements, fitted as often as there, with all candidates in its pool."""
    model = estimate.Model(machine.domain.spaces)
    model.extend([candidate for candidate, _ in measured])
    for number, (candidate, seconds) in enumerate(measured, 1):
        model.observe(candidate, seconds)
        if number in (6, 13, 21, 32, 49, 73, 109):
            model.estimate()
    model.extend([candidate for candidate, _ in test])
    return model


def _use(*values: Any) -> None:
    """Length, errors and features of the models that are built from now on."""
    for name, value in zip(("LENGTH", "SIGNALS", "CandidateFeatures"), values, strict=True):
        setattr(estimate, name, value)


def predictions(machine: Drawn, measured: Measured, test: Measured) -> Iterator[tuple[str, Any]]:
    """Name -> predicted seconds of the test."""
    usual = estimate.LENGTH, estimate.SIGNALS, CandidateFeatures
    variants = {
        "the model of the search": usual, "length 0.3": (0.3, *usual[1:]), "length 0.5": (0.5, *usual[1:]),
        "error from 1.5 %": (usual[0], SMALLER, usual[2]), "both, length 0.3": (0.3, SMALLER, usual[2]),
        "bits of neighbours": (*usual[:2], Neighbours),
    }  # fmt: skip
    for name, (length, signals, features) in variants.items():
        _use(length, signals, features)
        model = fitted(machine, measured, test)
        yield name, model.estimate()[0][[model.row[c] for c, _ in test]]
    _use(*usual)
    model = fitted(machine, measured, test)
    simulated = model.fitted()
    here, there = ([model.row[c] for c, _ in part] for part in (measured, test))
    yield "the simulation alone", simulated[there]
    left = np.log([seconds for _, seconds in measured]) - np.log(simulated[here])
    for name, features in (("", CandidateFeatures), (", neighbours", Neighbours)):
        bits = features(machine.domain.spaces)
        known, asked = (bits.of([c for c, _ in part]).astype(float) for part in (measured, test))
        yield f"simulation, linear{name}", simulated[there] * np.exp(_linear(known, left, asked))
        yield f"simulation, forest{name}", simulated[there] * np.exp(_forest(known, left, asked))


def _linear(known: Any, left: Any, asked: Any) -> Any:
    middle, mean, width = known.mean(0), left.mean(), known.shape[1]
    alike = (known - middle) @ (known - middle).T / width

    def missed(decay: float) -> float:
        hat = alike @ np.linalg.inv(alike + decay * np.eye(len(alike)))
        return float(((left - mean - hat @ (left - mean)) / (1 - np.diag(hat))).std())

    decay = min(DECAYS, key=missed)
    weights = np.linalg.solve(alike + decay * np.eye(len(alike)), left - mean)
    return mean + (asked - middle) @ (known - middle).T @ weights / width


def _forest(known: Any, left: Any, asked: Any) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(80, min_samples_leaf=3, max_features=0.3, random_state=0)
    return forest.fit(known, left).predict(asked)


def judged(predicted: Any, test: Measured) -> tuple[float, float, float]:
    """Error, rank and loss, as above."""
    truth = np.array([seconds for _, seconds in test])
    picked = truth[np.argsort(predicted, kind="stable")[:PICKED]]
    rank = float(spearmanr(predicted, truth).statistic)
    return float(np.log(predicted / truth).std()), rank, median(picked / truth.min() - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", type=int, nargs="+", default=[1002, 1012, 1022, 1032], help="these machines")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    table: dict[str, list[tuple[float, float, float]]] = {}
    for seed in args.only:
        machine = drawn(seed)
        measured, test = data(machine)
        for name, predicted in predictions(machine, measured, test):
            table.setdefault(name, []).append(judged(predicted, test))
    out = [f"| error %, rank, loss % | {' | '.join(map(str, args.only))} | mean |", "|---" * (len(args.only) + 2) + "|"]
    for name, found in table.items():
        mean = tuple(fmean(values) for values in zip(*found, strict=True))
        cells = (f"{100 * error:.2f}, {rank:.2f}, {100 * loss:.1f}" for error, rank, loss in (*found, mean))
        out.append(f"| {name} | {' | '.join(cells)} |")
    print("\n".join(out))
    if args.markdown:
        args.markdown.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
