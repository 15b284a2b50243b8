"""Trains the learner that `dagc tune` starts from, and writes it where the package finds it.

    python -m benchmarks.tune.learn ORACLE-fit.csv.xz ... --gpu h200 --compiled COMPILED.json.xz
    python -m benchmarks.tune.learn ORACLE-fit.csv.xz ... --compare ORACLE-validate.csv.xz     # the candidates, no file

Boosted trees (scikit-learn) on log(measured) - log(model), centred within a kernel and size; cells near the fastest
count most. Each kernel has the same weight. What the trees miss on families that they were not trained on (a quarter of
the families is left out at a time) gives the hyperparameters of the process on top of them, by maximum likelihood.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import minimize
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks.tune.launches import Array, Measured, load
from dagc.choice.residual import FEATURES, FILE, FORMAT, UNTRAINED, Learner, Trees, features, modelled, size_coordinates
from dagc.choice.surface import Kernel, prior_covariance
from dagc.choice.terms import responses

COMPILED = Path(__file__).parents[1] / "results" / "2026-11-22-h100-corpus" / "compiled.json.xz"
NEAR = 0.3  # logarithm of t / t_best at which the weight of a cell has fallen to 1 / e
LEAST = 0.05  # weight of a cell that is far from the best
FOLDS = 4
BLIND = 1.5  # least ratio of what is missed without a model to what a model misses
MOST_CELLS = 60  # of a kernel, for the likelihood


@dataclass(frozen=True, slots=True)
class Recipe:
    """How trees are grown. `of`: the features that they may use; `shrink`: how much of what they say counts."""

    rounds: int = 150
    rate: float = 0.05
    leaves: int = 8
    least: int = 100
    ridge: float = 5.0
    share: float = 1.0
    shrink: float = 1.0
    without: tuple[str, ...] = ()

    @property
    def columns(self) -> list[int]:
        return [i for i, name in enumerate(FEATURES) if not any(part in name for part in self.without)]


RECIPES = {
    "no trees": Recipe(rounds=0),
    "150 trees of 8 leaves": Recipe(),
    "60 trees of 6 leaves, without context": Recipe(rounds=60, leaves=6, least=200, without=(" of all", "seconds")),
    "150 trees of 8 leaves, without context": Recipe(without=(" of all", "seconds")),
    "300 trees of 15 leaves, a third of the features": Recipe(rounds=300, leaves=15, least=50, share=0.3),
    "60 trees of 6 leaves": Recipe(rounds=60, leaves=6),
}
CHOSEN = "no trees"


# ---- trees ----


def rows(found: Iterable[Measured]) -> tuple[Array, Array, Array]:
    """(features, residual, weight) of the measured cells."""
    xs, ys, ws = [], [], []
    for kernel in found:
        total = np.isfinite(kernel.logs).sum()
        for terms, logs in zip(kernel.terms, kernel.logs, strict=True):
            good = np.isfinite(logs)
            if good.sum() < 2:
                continue
            missed = logs - modelled(terms)
            xs.append(features(terms)[good])
            ys.append((missed - missed[good].mean())[good])
            ws.append((np.exp(-(logs - logs[good].min()) / NEAR) + LEAST)[good] / total)
    return np.vstack(xs), np.concatenate(ys), np.concatenate(ws)


def grown(found: Sequence[Measured], recipe: Recipe) -> Trees | None:
    """Trees, as the package evaluates them."""
    if not recipe.rounds:
        return None
    x, y, weight = rows(found)
    columns = recipe.columns
    used = np.nan_to_num(x[:, columns], nan=-99.0) if np.isnan(x[:, columns]).all(axis=0).any() else x[:, columns]
    forest = HistGradientBoostingRegressor(
        max_iter=recipe.rounds, learning_rate=recipe.rate, max_leaf_nodes=recipe.leaves, min_samples_leaf=recipe.least,
        l2_regularization=recipe.ridge, max_features=recipe.share, random_state=0, early_stopping=False,
    ).fit(used, y, sample_weight=weight / weight.mean())  # fmt: skip
    nodes = [tree.nodes for (tree,) in forest._predictors]
    most = max(map(len, nodes))

    def table(get: Callable[[Any], Any], kind: type) -> Any:
        out = np.zeros((len(nodes), most), dtype=kind)
        for row, tree in zip(out, nodes, strict=True):
            row[: len(tree)] = get(tree)
        return out

    where = np.array(columns)
    return Trees(
        table(lambda t: np.where(t["is_leaf"], 0, where[t["feature_idx"]]), int),
        table(lambda t: np.where(t["is_leaf"], 0.0, np.clip(t["num_threshold"], -1e300, 1e300)), float),
        table(lambda t: np.where(t["is_leaf"], 0, t["left"]), int),
        table(lambda t: np.where(t["is_leaf"], 0, t["right"]), int),
        table(lambda t: np.where(t["is_leaf"], recipe.shrink * t["value"], 0.0), float),
        table(lambda t: t["missing_go_to_left"].astype(bool), bool),
    )


def left_out(found: Sequence[Measured], recipe: Recipe) -> list[Trees | None]:
    """For each kernel the trees that were grown without its family, and others: the families in FOLDS parts."""
    families = list(dict.fromkeys(k.family for k in found))
    fold = {family: i % FOLDS for i, family in enumerate(families)}
    without = [grown([k for k in found if fold[k.family] != i], recipe) for i in range(min(FOLDS, len(families)))]
    return [without[fold[k.family]] for k in found]


# ---- the process on top ----


@dataclass(frozen=True, slots=True)
class Missed:
    """What was missed of some cells of a kernel, centred within each size."""

    mean: Array
    responses: Array
    places: Array
    sizes: Array
    size_of: Any
    values: Array
    known: bool  # whether the model reads the kernel


def missed(found: Sequence[Measured], trees: Sequence[Trees | None]) -> list[Missed]:
    draw, out = np.random.default_rng(0), []
    for kernel, own in zip(found, trees, strict=True):
        cells = np.argwhere(np.isfinite(kernel.logs))
        if len(cells) < 10:
            continue
        chosen = cells[np.sort(draw.choice(len(cells), min(MOST_CELLS, len(cells)), replace=False))]
        predicted = np.array([replace(UNTRAINED, trees=own).predict(terms)[0] for terms in kernel.terms])
        at, setting = chosen.T
        answers = np.array([responses(terms) for terms in kernel.terms])[at, setting]
        kept, size_of = np.unique(at, return_inverse=True)
        mean, values = predicted[at, setting], kernel.logs[at, setting]
        for number in range(len(kept)):
            mine = size_of == number
            mean[mine] -= mean[mine].mean()
            values[mine] -= values[mine].mean()
        sizes = size_coordinates([kernel.points[i] for i in kept])
        known = bool(np.isfinite(kernel.terms[:, :, 0]).any())
        out.append(Missed(mean, answers, kernel.places[setting], sizes, size_of, values - mean, known))
    return out


AMPLITUDES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
START = (6.0, 9.0, 6.0, 3.0, 0.8, 1.6, 0.8, 0.016, 0.4, 0.5, 0.2)


def kernel_of(logs: Array) -> tuple[Kernel, float]:
    x, y, z, other, *rest, deviation = map(float, np.exp(logs))
    return Kernel((x, y, z, other), *rest, noise=0.004), deviation


def fitted(missed: Sequence[Missed]) -> tuple[Kernel, float, float]:
    """(kernel, deviation, deviation where there is no model) by maximum likelihood, the amplitude of each kernel
    unknown."""
    known = [m for m in missed if m.known] or missed
    start = np.log(START)

    def cost(logs: Array) -> float:
        kernel, deviation = kernel_of(logs)
        return unlikely(known, kernel, deviation) + 0.02 * float(((logs - start) ** 2).sum())

    found = minimize(cost, start, method="L-BFGS-B", options={"maxiter": 12, "maxfun": 250})
    kernel, deviation = kernel_of(found.x)
    blind = [m for m in missed if not m.known]
    spread = math.sqrt(np.mean([m.values.var() for m in blind])) if blind else 0.0
    return kernel, deviation, max(spread, BLIND * deviation)


def unlikely(missed: Sequence[Missed], kernel: Kernel, deviation: float) -> float:
    """Minus the mean logarithm of the likelihood of a kernel's values."""
    total = 0.0
    for m in missed:
        logs = []
        for amplitude in AMPLITUDES:
            spread = np.full(len(m.mean), amplitude * deviation)
            answers = amplitude * m.responses
            covariance = prior_covariance(kernel, m.mean, spread, answers, m.places, m.sizes, m.size_of)
            covariance[np.diag_indices_from(covariance)] += kernel.noise**2
            try:
                root = cholesky(covariance, lower=True, check_finite=False)
            except LinAlgError:
                return 1e9
            scaled = solve_triangular(root, m.values, lower=True, check_finite=False)
            logs.append(-0.5 * float(scaled @ scaled) - float(np.log(np.diag(root)).sum()))
        total -= float(np.logaddexp.reduce(logs)) - math.log(len(AMPLITUDES))
    return total / len(missed)


# ---- the learner ----


def learned(found: Sequence[Measured], recipe: Recipe, archs: Sequence[str], source: str) -> Learner:
    """A learner of some kernels."""
    kernel, deviation, blind = fitted(missed(found, left_out(found, recipe)))
    return Learner(grown(found, recipe), kernel, deviation, blind, tuple(archs), source)


def as_json(learner: Learner) -> dict[str, Any]:
    """As `dagc.choice.residual.load_learner` reads it."""
    trees = []
    if learner.trees is not None:
        for t in range(len(learner.trees.value)):
            used = max(1, int(max(learner.trees.left[t].max(), learner.trees.right[t].max())) + 1)
            row = {n: getattr(learner.trees, n)[t][:used].tolist() for n in asdict(learner.trees)}
            row["threshold"] = [float(f"{v:.6g}") for v in row["threshold"]]
            row["value"] = [float(f"{v:.5g}") for v in row["value"]]
            row["unknown_left"] = [int(v) for v in row["unknown_left"]]
            trees.append(row)
    return {
        "format": FORMAT, "source": learner.source, "archs": list(learner.archs), "features": list(FEATURES),
        "kernel": asdict(learner.kernel), "deviation": learner.deviation, "blind": learner.blind, "trees": trees,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracles", type=Path, nargs="+")
    parser.add_argument("--gpu", default="h200", help="descriptor of the GPU of the oracles (default: h200)")
    parser.add_argument("--compiled", type=Path, default=COMPILED, help="from benchmarks.tune.compiled")
    parser.add_argument("--compare", type=Path, metavar="CSV", help="judge every recipe on it, write nothing")
    parser.add_argument("--recipe", default=CHOSEN, choices=RECIPES)
    parser.add_argument("-o", dest="output", type=Path, default=FILE, help=f"(default: {FILE.name} of the package)")
    args = parser.parse_args()
    found = load(args.oracles, args.gpu, args.compiled)
    if args.compare is not None:
        from benchmarks.tune.corpus import candidates

        print("\n".join(candidates(found, load([args.compare], args.gpu, args.compiled), RECIPES)))
        return 0
    named = ", ".join(f"{p.parent.name}/{p.name}" for p in args.oracles)
    learner = learned(found, RECIPES[args.recipe], ["sm_90"], f"{args.recipe}, of {len(found)} kernels: {named}")
    args.output.write_text(json.dumps(as_json(learner), separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{args.output}: {args.output.stat().st_size >> 10} KiB, {learner.source}")
    print(learner.kernel, f"deviation {learner.deviation:.3f}, without a model {learner.blind:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
