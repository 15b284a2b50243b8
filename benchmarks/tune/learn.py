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
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.optimize import minimize
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks.tune.launches import Array, Measured, load
from dagc.choice.residual import (
    FEATURES,
    FILE,
    FORMAT,
    UNTRAINED,
    Learner,
    Trees,
    features,
    modelled,
    responses,
    size_coordinates,
)
from dagc.choice.surface import Covariance, Rows, distance, matern, prior_covariance, squares, within_sizes

RESULTS = Path(__file__).parents[1] / "results"
COMPILED = [RESULTS / name / "compiled.json.xz" for name in ("2026-11-22-h100-corpus", "2026-11-23-h100-unseen2")]
NEAR = 0.3  # logarithm of t / t_best at which the weight of a cell has fallen to 1 / e
LEAST = 0.05  # weight of a cell that is far from the best
FOLDS = 4
BLIND = 1.5  # least ratio of what is missed without a model to what a model misses
MOST_CELLS = 80  # of a kernel, for the likelihood


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
        plain = replace(UNTRAINED, trees=own)
        predicted = np.array([plain.predict(terms, kernel.choices)[0] for terms in kernel.terms])
        at, setting = chosen.T
        answers = np.array([responses(terms) for terms in kernel.terms])[at, setting]
        kept, size_of = np.unique(at, return_inverse=True)
        mean, values = predicted[at, setting], kernel.logs[at, setting]
        for number in range(len(kept)):
            mine = size_of == number
            mean[mine] -= mean[mine].mean()
            values[mine] -= values[mine].mean()
        sizes = size_coordinates([kernel.cases[i] for i in kept])
        known = bool(np.isfinite(kernel.terms[:, :, 0]).any())
        out.append(Missed(mean, answers, kernel.places[setting], sizes, size_of, values - mean, known))
    return out


AMPLITUDES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
# Correlation lengths (along x up to a warp and beyond, y, z, other tunables; sizes), standard deviations of what is
# missed of a setting, of what is similar at similar sizes, and of a cell alone; of the strength, of a term's factor.
START = np.log([2.6, 7.8, 6.2, 6.0, 2.3, 7.7, 0.05, 0.11, 0.02, 0.4, 0.5])
DRAWN = 0.02  # how much a logarithm is drawn to its start
NOISE = 0.004


def kernel_of(logs: Array) -> tuple[Covariance, float]:
    """Hyperparameters and standard deviation, for logarithms as in START."""
    *lengths, size_length, shared, similar, alone, strength, terms = np.exp(logs).tolist()
    variances = [shared**2, similar**2, alone**2]
    whole = sum(variances)
    along = (lengths[0], lengths[1], lengths[2], lengths[3], lengths[4])
    return Covariance(along, size_length, *(v / whole for v in variances), strength, terms, NOISE), math.sqrt(whole)


def fitted(missed: Sequence[Missed]) -> tuple[Covariance, float, float]:
    """(kernel, deviation, deviation where there is no model) by maximum likelihood, the amplitude of each kernel
    unknown."""
    known = [m for m in missed if m.known] or missed

    def cost(logs: Array) -> tuple[float, Array]:
        each = [likelihood(m, logs) for m in known]
        away = logs - START
        gradient = np.mean([g for _, g in each], axis=0)
        return DRAWN * float(away @ away) - statistics.fmean(v for v, _ in each), 2 * DRAWN * away - gradient

    found = minimize(cost, START, jac=True, method="L-BFGS-B", bounds=[(-7.0, 7.0)] * len(START))
    kernel, deviation = kernel_of(found.x)
    blind = [m for m in missed if not m.known]
    spread = math.sqrt(np.mean([m.values.var() for m in blind])) if blind else 0.0
    return kernel, deviation, max(spread, BLIND * deviation)


def likelihood(m: Missed, logs: Array) -> tuple[float, Array]:
    """Logarithm of the likelihood of a kernel's values, but for a constant, and its derivatives by `logs`."""
    kernel, deviation = kernel_of(logs)
    identity = np.eye(len(m.mean))
    inner, logarithms = [], []
    for amplitude in AMPLITUDES:
        spread, answers = np.full(len(m.mean), amplitude * deviation), amplitude * m.responses
        covariance = prior_covariance(kernel, Rows(m.mean, spread, answers, m.places, m.sizes, m.size_of))
        try:
            root = cholesky(covariance + NOISE**2 * identity, lower=True, check_finite=False)
        except LinAlgError:
            return -1e9, np.zeros(len(logs))
        inverse = cho_solve((root, True), identity, check_finite=False)
        solved = inverse @ m.values
        logarithms.append(-0.5 * float(m.values @ solved) - float(np.log(np.diag(root)).sum()))
        inner.append(np.outer(solved, solved) - inverse)
    weights = np.exp(np.array(logarithms) - np.logaddexp.reduce(logarithms))
    value = float(np.logaddexp.reduce(logarithms)) - math.log(len(AMPLITUDES))
    plain = sum(w * i for w, i in zip(weights, inner, strict=True))
    scaled = sum(w * a**2 * i for w, a, i in zip(weights, AMPLITUDES, inner, strict=True))
    return value, slope(m, logs, np.asarray(plain), np.asarray(scaled))


def slope(m: Missed, logs: Array, plain: Array, scaled: Array) -> Array:
    """Derivatives of the logarithm of a likelihood, from those by the elements of the covariance, twice: `plain` of
    what has no amplitude, `scaled` of what is multiplied by it."""
    kernel, _ = kernel_of(logs)
    _, _, _, _, _, _, shared, similar, alone, strength, terms = np.exp(2 * logs)
    apart = squares(m.places, kernel.lengths)
    alike, falling = matern(np.sqrt(apart.sum(axis=2)))
    of_sizes = distance(m.sizes) / kernel.size_length
    near = np.exp(-of_sizes)[np.ix_(m.size_of, m.size_of)]
    same = (m.size_of[:, None] == m.size_of[None, :]).astype(float)
    mean, answers = within_sizes(m.mean[:, None], same), within_sizes(m.responses, same)
    along = np.einsum("ij,ijk->k", scaled * falling * (shared + similar * near), apart) / 2
    by_size = similar * scaled * alike * near
    return np.array([
        *along, (by_size * of_sizes[np.ix_(m.size_of, m.size_of)]).sum() / 2,
        shared * (scaled * alike).sum(), by_size.sum(), alone * np.trace(scaled),
        strength * (mean.T @ plain @ mean).item(), terms * (answers * (scaled @ answers)).sum(),
    ])  # fmt: skip


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
    parser.add_argument(
        "--compiled", type=Path, nargs="+", default=COMPILED, metavar="JSON", help="from benchmarks.tune.compiled"
    )
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
